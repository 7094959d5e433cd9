import type { z } from "zod";
import { issueLines } from "./issue-lines.ts";
import { UserError } from "./user-error.ts";

/** Parses JSON, with or without a byte order mark. */
export function parseJson(text: string, displayPath: string): unknown {
  try {
    return JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw new UserError(`${displayPath}: must be JSON`);
  }
}

/** A wrong value may be a whole document. */
const maxCharacters = 400;

/** Parses a value with a schema. */
export function parseAs<T extends z.ZodType>(schema: T, value: unknown, where: string): z.infer<T> {
  const { data, error } = schema.safeParse(value);
  if (error === undefined) return data as z.infer<T>;
  const [line = "is invalid"] = issueLines(error.issues, schema, value);
  throw new UserError(`${where}: ${line}`.slice(0, maxCharacters));
}
