import type { Construct } from "constructs";
import { z } from "zod";
import { issueLines } from "../../contract/issue-lines.ts";
import { Token } from "../terraform/cdktf.ts";
import { check, type Finding, findingIf } from "./findings.ts";

/**
 * Checks props against the schemas of `fields`, and all other numbers in them: whole, at least 0, and known during synthesis. A declared GPU has a schema.
 * Properties that `fields` omits may have any other value; an omitted property passes if its schema is optional.
 *
 * @param standIns - Values in place of invalid ones, so that the rest of the construct is checked too. Default: those of omitted properties.
 * @returns The props, with stand-ins for invalid properties.
 */
export function checkedProps<Props extends object>(
  scope: Construct,
  props: Props,
  fields: Readonly<Record<string, z.ZodType>> = {},
  standIns: Partial<Props> = {},
): Props {
  const schema = z.object(fields);
  const numbers = numberFindings(props, []);
  const isNumber = (path: readonly PropertyKey[]) =>
    numbers.some(({ path: other }) => other === path.map(String).join("."));
  const issues = (schema.safeParse(props).error?.issues ?? []).filter(
    ({ path }) => !isNumber(path),
  );
  check(scope, () => [...numbers, ...issueLines(issues, schema, props)]);
  const invalid = [
    ...numbers.map(({ path }) => path.split(".")[0]),
    ...issues.map(({ path }) => String(path[0])),
  ].filter((key): key is keyof Props & string => key !== undefined && key in props);
  return {
    ...props,
    ...Object.fromEntries(
      invalid
        .filter((key) => key in standIns || fields[key]?.safeParse(undefined).success !== false)
        .map((key) => [key, standIns[key]]),
    ),
  };
}

/** Findings about the numbers in plain data. Constructs and model specs have checks of their own. */
function numberFindings(value: unknown, path: readonly string[]): readonly Finding[] {
  const name = path.join(".");
  if (typeof value === "number") {
    const got = Token.isUnresolved(value) ? "a token, which only Terraform resolves" : value;
    return findingIf(!(Number.isInteger(value) && value >= 0), name, "be a whole number", got);
  }
  if (
    typeof value !== "object" ||
    value === null ||
    ["models", "gpu"].includes(String(path.at(-1)))
  ) {
    return [];
  }
  const isPlain = Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
  if (!isPlain) return [];
  return Object.entries(value).flatMap(([key, inner]) => numberFindings(inner, [...path, key]));
}
