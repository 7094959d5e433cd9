import { type ZodType, z } from "zod";
import { parseAs, parseJson } from "../../artefact/parse.ts";
import { UserError } from "../../contract/user-error.ts";

/** Identity of one kind of record. */
export interface RecordKind<T> {
  readonly kind: string;
  /** Current schema version. */
  readonly version: number;
  readonly schema: ZodType<T>;
}

/**
 * Parses a saved record.
 *
 * @param displayPath - File name in errors.
 * @throws {UserError} one line: the file, the field, the rule and the value.
 */
export function parseRecordAs<T>(kind: RecordKind<T>, text: string, displayPath: string): T {
  const raw = parseJson(text, displayPath);
  const head = z
    .looseObject({ schema: z.unknown().optional(), kind: z.unknown().optional() })
    .safeParse(raw);
  if (!head.success) throw new UserError(`${displayPath}: must be a saved record`);
  requireEqual(displayPath, "kind", kind.kind, head.data.kind);
  requireEqual(displayPath, "schema", kind.version, head.data.schema);
  return parseAs(kind.schema, head.data, displayPath);
}

/** JSON Schema of a kind of record. */
export function renderRecordSchema({ kind, schema }: RecordKind<unknown>): string {
  const jsonSchema = z.toJSONSchema(schema, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: `clipstack ${kind} record`, ...jsonSchema }, null, 2)}\n`;
}

function requireEqual(displayPath: string, name: string, expected: unknown, got: unknown): void {
  if (got === expected) return;
  throw new UserError(
    `${displayPath}: ${name} must be ${JSON.stringify(expected)}, got ${got === undefined ? "nothing" : JSON.stringify(got)}`,
  );
}
