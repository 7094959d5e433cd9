import { z } from "zod";
import { type StackName, stackNames, stackSchemas } from "./settings.ts";

/** Used part of a JSON Schema. */
export interface JsonSchema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly (string | number)[];
  readonly const?: string;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly items?: JsonSchema;
  readonly prefixItems?: readonly JsonSchema[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
}

interface Row {
  readonly name: string;
  readonly values: string;
  readonly fallback: string;
  readonly description: string;
}

/** `docs/settings.md`: one table per stack, from the schemas that validate the settings. */
export function settingsDocs(): string {
  return [
    "<!-- Rendered by `npm run render` from the settings schemas in stacks/. Do not edit. -->",
    "",
    "# Settings",
    "",
    "Each `environments/<name>.yaml` is one environment: `stack` selects the kind of deployment, and the other keys are that",
    "stack's settings, with the defaults below. Editors with YAML support validate the file while you type: its first line names",
    "the JSON Schema in `stacks/schemas/`. `npm run synth` and `npx cdktf synth` print every error of every file, one line each.",
    "An environment with errors is not written; the others are. `npm run synth` then exits with code 2.",
    "",
    ...stackNames.flatMap(section),
  ].join("\n");
}

function section(stack: StackName): readonly string[] {
  const schema = z.toJSONSchema(stackSchemas[stack], { io: "input" }) as JsonSchema;
  return [`## ${stack}`, "", `\`stack: ${stack}\``, "", ...schemaTable("setting", schema), ""];
}

/** Markdown table of a JSON Schema, one row per leaf. */
export function schemaTable(heading: string, schema: object): readonly string[] {
  return [
    `| ${heading} | value | default | |`,
    "| --- | --- | --- | --- |",
    ...rows("", schema as JsonSchema).map(
      ({ name, values, fallback, description }) =>
        `| \`${name}\` | ${cell(values)} | ${cell(fallback)} | ${cell(description)} |`,
    ),
  ];
}

/** Leaves of the schema, and objects that have a description. */
function rows(path: string, schema: JsonSchema): readonly Row[] {
  return Object.entries(schema.properties ?? {}).flatMap(([key, property]) => {
    const name = path === "" ? key : `${path}.${key}`;
    const description = property.description ?? "";
    if (property.properties === undefined) {
      const isRequired = schema.required?.includes(key) === true;
      const fallback = isRequired ? "required" : code(property.default);
      return [{ name, values: valuesOf(property), fallback, description }];
    }
    const head = description === "" ? [] : [{ name, values: "", fallback: "", description }];
    const inner = rows(name, property).map((row) => ({
      ...row,
      fallback:
        row.fallback === ""
          ? code(defaultAt(property, row.name.slice(name.length + 1)))
          : row.fallback,
    }));
    return [...head, ...inner];
  });
}

/** Default of a leaf that the default of an object around it contains. */
function defaultAt(schema: JsonSchema, path: string): unknown {
  const [key = "", ...rest] = path.split(".");
  if (rest.length > 0) return undefined;
  return (schema.default as Readonly<Record<string, unknown>> | undefined)?.[key];
}

function valuesOf(schema: JsonSchema): string {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return [...new Set(choices.map(valuesOf))].join(" or ");
  if (schema.properties !== undefined) {
    const inner = Object.entries(schema.properties).map(([key, { const: value }]) =>
      value === undefined ? key : `${key}: ${value}`,
    );
    return `{ ${inner.join(", ")} }`;
  }
  if (schema.enum !== undefined) {
    return [...new Set(schema.enum.filter((choice) => choice !== "").map(code))].join(", ");
  }
  if (schema.prefixItems !== undefined) {
    return `list of ${schema.prefixItems.length} × ${valuesOf(schema.prefixItems[0] ?? {})}`;
  }
  if (schema.type === "array") {
    const items = schema.items?.properties;
    return items === undefined
      ? `list of ${valuesOf(schema.items ?? {})}`
      : `list of { ${Object.keys(items).join(", ")} }`;
  }
  if (schema.type === "object") return "map of text";
  if (schema.minimum !== undefined && schema.maximum !== undefined) {
    return `${schema.minimum} to ${schema.maximum}`;
  }
  if (schema.exclusiveMinimum !== undefined) {
    return schema.maximum === undefined
      ? `above ${schema.exclusiveMinimum}`
      : `above ${schema.exclusiveMinimum}, at most ${schema.maximum}`;
  }
  if (schema.type === "number") return "number";
  return schema.type === "boolean" ? "`true`, `false`" : "text";
}

function code(value: unknown): string {
  if (value === undefined) return "";
  if (value === "") return '`""`';
  return `\`${typeof value === "string" ? value : JSON.stringify(value)}\``;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
