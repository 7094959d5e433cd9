import { type ZodType, z } from "zod";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";

/** Identity of one kind of record. */
export interface RecordKind<T> {
  readonly kind: string;
  /** Current schema version. */
  readonly version: number;
  readonly schema: ZodType<T>;
}

/** Parses a saved record. */
export function parseRecordAs<T>(kind: RecordKind<T>, text: string, displayPath: string): T {
  const raw = parseJson(text, displayPath);
  const head = z
    .looseObject({ schema: z.unknown().optional(), kind: z.unknown().optional() })
    .safeParse(raw);
  if (!head.success) throw new UserError(`${displayPath}: must be a saved record`);
  requireEqual(`${displayPath}: kind`, kind.kind, head.data.kind);
  const hint = ": repeat the run with this version of clipstack";
  const subject = `${displayPath}: record version (schema)`;
  requireEqual(subject, kind.version, head.data.schema, hint);
  return parseAs(kind.schema, head.data, displayPath);
}

export function renderRecordSchema({ kind, schema }: RecordKind<unknown>): string {
  const jsonSchema = z.toJSONSchema(schema, { target: "draft-2020-12" });
  return `${JSON.stringify({ title: `clipstack ${kind} record`, ...jsonSchema }, null, 2)}\n`;
}

function requireEqual(subject: string, expected: unknown, got: unknown, hint = ""): void {
  if (got === expected) return;
  if (got === undefined) throw new UserError(`${subject} is required`);
  throw new UserError(
    `${subject} must be ${JSON.stringify(expected)}, got ${JSON.stringify(got)}${hint}`,
  );
}
