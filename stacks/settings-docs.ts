import { z } from "zod";
import { type EnvironmentName, stackSchemas } from "./settings.ts";

/** What this needs of a JSON Schema. */
interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly (string | number)[];
  readonly const?: string;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
}

interface Row {
  readonly name: string;
  readonly values: string;
  readonly fallback: string;
  readonly description: string;
}

/** `docs/settings.md`: one table for each environment, from the schemas that check the settings. */
export function settingsDocs(): string {
  return [
    "<!-- Rendered by `npm run render` from stacks/settings.ts. Do not edit. -->",
    "",
    "# Settings",
    "",
    "`stacks/<environment>.settings.yaml` holds what a person edits; whatever it leaves out has the default below. An editor",
    "with YAML support checks the file as you type: its first line names the JSON Schema in `stacks/schemas/`. Every mistake in",
    "every file is reported at once, one line each, by `npm run synth` and `npx cdktf synth`, with exit code 2.",
    "",
    ...(Object.keys(stackSchemas) as EnvironmentName[]).flatMap(section),
  ].join("\n");
}

function section(environment: EnvironmentName): readonly string[] {
  const schema = z.toJSONSchema(stackSchemas[environment], { io: "input" }) as Schema;
  return [`## ${environment}`, "", ...schemaTable("setting", schema), ""];
}

/** What can be set, from a JSON Schema: a Markdown table, a row for each leaf. */
export function schemaTable(heading: string, schema: object): readonly string[] {
  return [
    `| ${heading} | value | default | |`,
    "| --- | --- | --- | --- |",
    ...rows("", schema as Schema).map(
      ({ name, values, fallback, description }) =>
        `| \`${name}\` | ${cell(values)} | ${cell(fallback)} | ${cell(description)} |`,
    ),
  ];
}

/** Leaves of the schema; an object with a description of its own has a row too. */
function rows(path: string, schema: Schema): readonly Row[] {
  return Object.entries(schema.properties ?? {}).flatMap(([key, property]) => {
    const name = path === "" ? key : `${path}.${key}`;
    const description = property.description ?? "";
    if (property.properties === undefined) {
      return [{ name, values: valuesOf(property), fallback: shown(property.default), description }];
    }
    const head = description === "" ? [] : [{ name, values: "", fallback: "", description }];
    const inner = rows(name, property).map((row) => ({
      ...row,
      fallback:
        row.fallback === ""
          ? shown(defaultAt(property, row.name.slice(name.length + 1)))
          : row.fallback,
    }));
    return [...head, ...inner];
  });
}

/** The default of a leaf, where an object's default names it. */
function defaultAt(schema: Schema, path: string): unknown {
  const [key = "", ...rest] = path.split(".");
  if (rest.length > 0) return undefined;
  return (schema.default as Readonly<Record<string, unknown>> | undefined)?.[key];
}

function valuesOf(schema: Schema): string {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return [...new Set(choices.map(valuesOf))].join(" or ");
  if (schema.properties !== undefined) {
    const inner = Object.entries(schema.properties).map(([key, { const: word }]) =>
      word === undefined ? key : `${key}: ${word}`,
    );
    return `{ ${inner.join(", ")} }`;
  }
  if (schema.enum !== undefined) {
    return schema.enum
      .filter((word) => word !== "")
      .map((word) => `\`${word}\``)
      .join(", ");
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
  if (schema.type === "object") return "map";
  return schema.type === "boolean" ? "`true`, `false`" : "text";
}

function shown(value: unknown): string {
  if (value === undefined) return "";
  if (value === "") return '`""`';
  return `\`${typeof value === "string" ? value : JSON.stringify(value)}\``;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
