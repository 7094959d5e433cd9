import type { ModelConfig } from "./model-config.ts";

/** Fields with enum values, which are not quoted. */
const enumFields: ReadonlySet<string> = new Set(["data_type", "kind", "timeout_action"]);
/** Map fields: objects here, entries of `key` and `value` in the text. */
const mapFields: ReadonlySet<string> = new Set(["parameters", "inputs", "input_map", "output_map"]);

/** Renders a configuration as `config.pbtxt`, without a heading: one field per line, short lists on one line. */
export function printModelConfig(config: ModelConfig): string {
  return printFields(config);
}

export function printFields(message: object, indent = ""): string {
  return Object.entries(message)
    .flatMap(([name, value]: [string, unknown]) => {
      if (value === undefined) return [];
      const values = mapFields.has(name)
        ? Object.entries(value as object).map(([key, item]) => ({ key, value: item }))
        : [value];
      return values.map((item) => `${indent}${name}${printValue(name, item, indent)}\n`);
    })
    .join("");
}

/** Renders the value of a field, after a colon unless it is a message or a list of messages. */
function printValue(name: string, value: unknown, indent: string): string {
  if (!Array.isArray(value))
    return `${isMessage(value) ? "" : ":"} ${printItem(name, value, indent)}`;
  const items = value.map((item) => printItem(name, item, `${indent}  `));
  if (value.some(isMessage)) {
    return ` [\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}]`;
  }
  return `: [${items.join(", ")}]`;
}

function printItem(name: string, value: unknown, indent: string): string {
  if (!isMessage(value)) {
    return typeof value === "string" && !enumFields.has(name)
      ? JSON.stringify(value)
      : String(value);
  }
  const fields = printFields(value, `${indent}  `);
  if (fields === "") return "{ }";
  // entry of a map of strings
  if ("key" in value && !isMessage(value.value)) {
    return `{ ${fields.trim().replace(/\n\s*/, ", ")} }`;
  }
  return `{\n${fields}${indent}}`;
}

function isMessage(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
