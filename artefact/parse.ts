import type { z } from "zod";
import { UserError } from "../contract/user-error.ts";

/**
 * Parses JSON, with or without a byte order mark.
 *
 * @param displayPath - Name of the file in the message.
 * @throws {UserError} one line.
 */
export function parseJson(text: string, displayPath: string): unknown {
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw new UserError(`${displayPath}: must be JSON`);
  }
}

/**
 * Parses a value with a schema.
 *
 * @param where - File and field in the message.
 * @throws {UserError} one line: the first wrong field, the rule and the value.
 */
export function parseAs<T extends z.ZodType>(schema: T, value: unknown, where: string): z.infer<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = innermost(result.error.issues[0]);
  const path = issue.path.map(String).join(".");
  const rule = issue.message.replace(/^./, (c) => c.toLowerCase());
  // a top-level value is too long to print
  if (path === "") throw new UserError(`${where}: ${rule}`);
  const got = at(value, issue.path);
  const printed = got === undefined ? "nothing" : JSON.stringify(got).slice(0, 80);
  throw new UserError(`${where}: ${path}: ${rule}, got ${printed}`);
}

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Issue of a union's most deeply matching variant, the most likely intended one. */
function innermost(issue: z.core.$ZodIssue | undefined): Issue {
  if (issue === undefined) return { path: [], message: "is invalid" };
  if (issue.code !== "invalid_union") return { path: issue.path, message: issue.message };
  const candidates = issue.errors
    .map((issues) => innermost(issues[0]))
    .sort((a, b) => b.path.length - a.path.length);
  const best = candidates[0];
  if (best === undefined) return { path: issue.path, message: issue.message };
  return { path: [...issue.path, ...best.path], message: best.message };
}

function at(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (inner, key) =>
      typeof inner === "object" && inner !== null
        ? (inner as Record<PropertyKey, unknown>)[key]
        : undefined,
    value,
  );
}
