import type { Construct } from "constructs";
import { z } from "zod";
import { issueLines } from "../../contract/issue-lines.ts";
import { Token } from "../terraform/cdktf.ts";
import { check, finding } from "./findings.ts";

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
  const numbers = invalidNumbers(props, []);
  const issues = (schema.safeParse(props).error?.issues ?? []).filter(
    ({ path }) => !numbers.has(path.map(String).join(".")),
  );
  check(scope, () => [...numbers.values(), ...issueLines(issues, schema, props)]);
  const invalid = [
    ...[...numbers.keys()].map((path) => path.split(".")[0]),
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

/** Findings about the numbers in plain data, by path. Constructs, model specs, tracing and chart values have checks of their own. */
function invalidNumbers(value: unknown, path: readonly string[]): ReadonlyMap<string, string> {
  if (typeof value === "number") {
    if (Number.isInteger(value) && value >= 0) return new Map();
    const name = path.join(".");
    const got = Token.isUnresolved(value) ? "a token, which only Terraform resolves" : value;
    return new Map([[name, finding(name, "be a whole number", got)]]);
  }
  const hasOwnChecks = ["models", "gpu", "tracing", "chartValues"].includes(String(path.at(-1)));
  const isPlain =
    Array.isArray(value) ||
    (typeof value === "object" &&
      value !== null &&
      Object.getPrototypeOf(value) === Object.prototype);
  if (hasOwnChecks || !isPlain) return new Map();
  return new Map(
    Object.entries(value).flatMap(([key, inner]) => [...invalidNumbers(inner, [...path, key])]),
  );
}
