import { pathToFileURL } from "node:url";
import { z } from "zod";
import { ownRuleId } from "../../contract/rule-packs.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { type StackChange, severities } from "../input/change.ts";
import type { ReviewRule } from "../rules/rule.ts";

const line = z.string().regex(/^[^\n]{1,400}$/, "must be one line of at most 400 characters");

const ownRule = z.strictObject({
  id: z.string().regex(ownRuleId, "must start with 'own-', in kebab case"),
  severity: z.enum(severities),
  fix: line,
  find: z.custom<(change: StackChange) => unknown>((it) => typeof it === "function", {
    error: "must be a function",
  }),
});

const matches = z.array(
  z.strictObject({ address: z.string().optional(), message: line, fix: line.optional() }),
);

/** Loads the rules of a module, whose default export is a list of rules. */
export async function ownRules(file: string): Promise<readonly ReviewRule[]> {
  let module: { readonly default?: unknown };
  try {
    module = await import(pathToFileURL(file).href);
  } catch (error) {
    throw new UserError(`${file}: cannot be loaded (${firstLine(error)})`);
  }
  const list = parsed(z.array(ownRule), module.default, `${file}: the default export`);
  return list.map((rule) => ({
    ...rule,
    find: (change) => {
      let found: unknown;
      try {
        found = rule.find(change);
      } catch (error) {
        throw new UserError(`${file}: ${rule.id} failed (${firstLine(error)})`);
      }
      return parsed(matches, found, `${file}: the result of ${rule.id}`).map((match) => ({
        fix: rule.fix,
        ...match,
      }));
    },
  }));
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, name: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new UserError(`${[name, ...(issue?.path ?? [])].join(".")}: ${issue?.message}`);
}

function firstLine(error: unknown): string {
  return messageOf(error).split("\n")[0] ?? "";
}
