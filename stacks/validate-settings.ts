import type { z } from "zod";
import { issueLines } from "../contract/issue-lines.ts";
import { SettingsError } from "./settings-error.ts";

/**
 * Value of a settings file, with defaults filled in.
 *
 * @param file - Name of the file, for messages.
 * @throws {SettingsError} with every violation of the schema, one per line.
 */
export function validateSettings<Schema extends z.ZodType>(
  schema: Schema,
  file: string,
  input: unknown,
): z.output<Schema> {
  const result = schema.safeParse(input);
  if (!result.success) {
    const lines = issueLines(result.error.issues, schema, input);
    throw new SettingsError([`${file}:`, ...lines.map((line) => `  ${line}`)]);
  }
  return result.data;
}
