import {
  type PbtxtField,
  type PbtxtValue,
  parsePbtxt,
} from "../../inference-image/src/contract/pbtxt.ts";
import { type DiffBlock, diffTexts } from "./diff-line.ts";

/** What changes in a `config.pbtxt`, by field. Nothing where a text is none that can be read. */
export function diffPbtxt(before: string, after: string): DiffBlock | undefined {
  const [left, right] = [fieldsOf(before), fieldsOf(after)];
  if (left === undefined || right === undefined) return undefined;
  const model = right.get("name") ?? left.get("name");
  return {
    title: model === undefined ? "config.pbtxt" : `config.pbtxt of ${model.replaceAll('"', "")}`,
    lines: diffTexts(left, right).map((line) => ({ ...line, where: shortPath(line.where) })),
  };
}

/** Of a parameter of TensorRT its name: what leads there is as long as a line. */
function shortPath(where: string): string {
  return where.replace(
    /^optimization\.execution_accelerators\.gpu_execution_accelerator\[(\w+)\]\.parameters\[(\w+)\]$/,
    "$1 $2",
  );
}

/** Whether a text is a model's configuration, by its fields. */
export function isModelConfig(text: string): boolean {
  return (
    /^[ \t]*(max_batch_size|platform|backend)\s*:/m.test(text) &&
    /^[ \t]*(input|output)\b/m.test(text)
  );
}

/** Every field of a configuration by its path: `instance_group.count` is `1`. */
export function fieldsOf(text: string): ReadonlyMap<string, string> | undefined {
  const known = read.get(text);
  if (known !== undefined) return known;
  const fields = readFields(text);
  if (fields !== undefined && read.size < mostRead) read.set(text, fields);
  return fields;
}

/** Many resources have the same configuration. */
const read = new Map<string, ReadonlyMap<string, string>>();
const mostRead = 500;

function readFields(text: string): ReadonlyMap<string, string> | undefined {
  try {
    const found = new Map<string, string>();
    if (text !== "") flatten(parsePbtxt(text, "config.pbtxt"), "", found);
    return found;
  } catch {
    return undefined;
  }
}

function flatten(fields: readonly PbtxtField[], prefix: string, into: Map<string, string>): void {
  const count = new Map<string, number>();
  const messages = fields.flatMap(({ name, value }) =>
    (value.kind === "list" ? value.items : [value]).map((item) => ({ name, item })),
  );
  for (const { name, value } of fields) {
    const repeated = fields.filter((field) => field.name === name).length > 1;
    const items = value.kind === "list" ? value.items : [value];
    if (items.length > 0 && items.every((item) => item.kind === "message")) {
      for (const item of items) {
        const index = count.get(name) ?? 0;
        count.set(name, index + 1);
        const several = messages.filter((it) => it.name === name).length > 1;
        const key = keyOf(item.fields) ?? (several ? String(index) : undefined);
        const path = `${prefix}${name}${key === undefined ? "" : `[${key}]`}`;
        const entry = entryOf(item.fields);
        if (entry !== undefined) into.set(path, entry);
        else flatten(item.fields, `${path}.`, into);
      }
      continue;
    }
    const path = `${prefix}${name}`;
    const before = repeated ? into.get(path) : undefined;
    into.set(path, before === undefined ? textOf(value) : `${before}, ${textOf(value)}`);
  }
}

/** A map has keys, and what is repeated has names. */
function keyOf(fields: readonly PbtxtField[]): string | undefined {
  const named = fields.find(({ name }) => name === "key" || name === "name")?.value;
  return named?.kind === "string" ? named.text : undefined;
}

/** The value of an entry of a map from text to text. */
function entryOf(fields: readonly PbtxtField[]): string | undefined {
  if (fields.length !== 2 || fields[0]?.name !== "key" || fields[1]?.name !== "value") return;
  const { value } = fields[1];
  return value.kind === "message" || value.kind === "list" ? undefined : textOf(value);
}

function textOf(value: PbtxtValue): string {
  switch (value.kind) {
    case "string":
      return `"${value.text}"`;
    case "list":
      return `[${value.items.map(textOf).join(", ")}]`;
    case "message":
      return value.fields.length === 0 ? "{ }" : "{ … }";
    default:
      return value.text;
  }
}
