import { type ZodType, z } from "zod";
import { parseAs, parseJson } from "../../artefact/parse.ts";
import { UserError } from "../../contract/user-error.ts";

/** Identity of one kind of record. */
export interface RecordKind<T> {
  readonly kind: string;
  /** Current schema version. */
  readonly version: number;
  /**
   * Converts a record of the preceding version.
   *
   * @default - such records are rejected by their version, as all other versions are
   */
  readonly upgrade?: (record: Readonly<Record<string, unknown>>) => unknown;
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
  if (!head.success) throw new UserError(`${shown}: must be a saved record`);
  requireEqual(shown, "kind", kind.kind, head.data.kind);
  const { upgrade, version } = kind;
  if (upgrade !== undefined && head.data.schema === version - 1) {
    return parseAs(kind.schema, upgrade(head.data), shown);
  }
  requireEqual(shown, "schema", version, head.data.schema);
  return parseAs(kind.schema, raw, shown);
}

function requireEqual(shown: string, name: string, wanted: unknown, got: unknown): void {
  if (got === wanted) return;
  throw new UserError(
    `${shown}: ${name} must be ${JSON.stringify(wanted)}, got ${got === undefined ? "nothing" : JSON.stringify(got)}`,
  );
}
