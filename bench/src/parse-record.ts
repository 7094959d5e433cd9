import { type ZodType, z } from "zod";
import { BenchError } from "./bench-error.ts";

/** Identity of one kind of record. */
export interface RecordKind<T> {
  readonly kind: string;
  /** Schema version; records of other versions are rejected. */
  readonly version: number;
  readonly schema: ZodType<T>;
}

/**
 * Parses a saved record, with or without a byte order mark.
 *
 * @param shown - File name, for errors.
 * @throws {BenchError} one line: the file, the field, the rule and the value.
 */
export function parseRecordAs<T>(kind: RecordKind<T>, text: string, shown: string): T {
  let raw: unknown;
  try {
    raw = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw new BenchError(`${shown}: must be JSON`);
  }
  const head = z
    .looseObject({ schema: z.unknown().optional(), kind: z.unknown().optional() })
    .safeParse(raw);
  if (!head.success) throw new BenchError(`${shown}: must be a record of the bench`);
  requireEqual(shown, "kind", kind.kind, head.data.kind);
  requireEqual(shown, "schema", kind.version, head.data.schema);
  const result = kind.schema.safeParse(raw);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const where = issue === undefined || issue.path.length === 0 ? [] : [issue.path.join(".")];
  throw new BenchError([shown, ...where, issue?.message ?? "is invalid"].join(": "));
}

function requireEqual(shown: string, name: string, wanted: unknown, got: unknown): void {
  if (got === wanted) return;
  throw new BenchError(
    `${shown}: ${name} must be ${JSON.stringify(wanted)}, got ${got === undefined ? "nothing" : JSON.stringify(got)}`,
  );
}
