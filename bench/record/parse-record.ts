import { type ZodType, z } from "zod";
import { parseAs, parseJson } from "../../artefact/parse.ts";
import { UserError } from "../../contract/user-error.ts";

/** Identity of one kind of record. */
export interface RecordKind<T> {
  readonly kind: string;
  /** Schema version; records of other versions are rejected. */
  readonly version: number;
  readonly schema: ZodType<T>;
}

/**
 * Parses a saved record.
 *
 * @param shown - File name, for errors.
 * @throws {UserError} one line: the file, the field, the rule and the value.
 */
export function parseRecordAs<T>(kind: RecordKind<T>, text: string, shown: string): T {
  const raw = parseJson(text, shown);
  const head = z
    .looseObject({ schema: z.unknown().optional(), kind: z.unknown().optional() })
    .safeParse(raw);
  if (!head.success) throw new UserError(`${shown}: must be a record of the bench`);
  requireEqual(shown, "kind", kind.kind, head.data.kind);
  requireEqual(shown, "schema", kind.version, head.data.schema);
  return parseAs(kind.schema, raw, shown);
}

function requireEqual(shown: string, name: string, wanted: unknown, got: unknown): void {
  if (got === wanted) return;
  throw new UserError(
    `${shown}: ${name} must be ${JSON.stringify(wanted)}, got ${got === undefined ? "nothing" : JSON.stringify(got)}`,
  );
}
