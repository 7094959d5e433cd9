import { pathToFileURL } from "node:url";
import { z } from "zod";
import { parseAs } from "../../contract/parse.ts";
import { ownRuleId } from "../../contract/rule-packs.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { type StackChange, severities } from "../input/change.ts";
import { scrubber, secretTexts } from "../input/secret-texts.ts";
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

const result = z.object({
  result: z.array(
    z.strictObject({ address: z.string().optional(), message: line, fix: line.optional() }),
  ),
});

/** Loads the rules of a module, whose default export is a list of rules. */
export async function ownRules(file: string): Promise<readonly ReviewRule[]> {
  let module: object;
  try {
    module = await import(pathToFileURL(file).href);
  } catch (error) {
    throw new UserError(`${file}: cannot be loaded (${firstLine(error)})`);
  }
  const { default: list } = parseAs(z.object({ default: z.array(ownRule) }), { ...module }, file);
  return list.map((rule) => ({
    ...rule,
    find: (change) => {
      try {
        const found = rule.find(change);
        if (found instanceof Promise) {
          found.catch(() => undefined);
          throw new UserError("find must not be asynchronous, got a Promise");
        }
        return parseAs(result, { result: found }, "find").result.map((match) => ({
          fix: rule.fix,
          ...match,
        }));
      } catch (error) {
        const text = `${file}: ${rule.id}: ${firstLine(error)}`;
        throw new UserError(scrubber(secretTexts([change]))(text));
      }
    },
  }));
}

function firstLine(error: unknown): string {
  return messageOf(error).split("\n")[0] ?? "";
}
