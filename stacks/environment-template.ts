import { stringify } from "yaml";
import { z } from "zod";
import { type StackName, stackSchemas } from "./settings.ts";
import type { JsonSchema } from "./settings-docs.ts";

/**
 * Text of a new environment file: every setting with its description and default.
 *
 * @param schemaFile - Path of the stack's JSON Schema, relative to the file.
 */
export function environmentTemplate(name: string, stack: StackName, schemaFile: string): string {
  const schema = z.toJSONSchema(stackSchemas[stack], { io: "input" }) as JsonSchema;
  return [
    `# yaml-language-server: $schema=${schemaFile}`,
    "#",
    `# Environment ${name}. All values are defaults, which may be deleted, unless a comment says otherwise.`,
    "# docs/settings.md has the ranges of all values.",
    "",
    `stack: ${stack}`,
    ...settingLines(schema, "", uniqueNames(name)[stack] ?? {}),
    "",
  ].join("\n");
}

/** Settings by path whose defaults would collide with those of another environment of the stack. */
function uniqueNames(name: string): Partial<Record<StackName, Readonly<Record<string, string>>>> {
  return { kind: { "cluster.name": name }, kubernetes: { namespace: name } };
}

function settingLines(
  { properties = {} }: JsonSchema,
  path: string,
  overrides: Readonly<Record<string, string>>,
): readonly string[] {
  const indent = "  ".repeat(path.split(".").length - 1);
  return Object.entries(properties).flatMap(([key, schema]) => {
    const settingPath = `${path}${key}`;
    const override = overrides[settingPath];
    const comment = [
      schema.description,
      alternatives(schema),
      override && "Differs from the default, because it must be unique.",
    ];
    const head = [
      ...(path === "" ? [""] : []),
      ...wrap(comment.filter((part) => part !== undefined).join(" ")).map(
        (line) => `${indent}# ${line}`,
      ),
    ];
    const value = override ?? schema.default;
    if (schema.properties !== undefined && isEmpty(value)) {
      return [...head, `${indent}${key}:`, ...settingLines(schema, `${settingPath}.`, overrides)];
    }
    return [
      ...head,
      value === undefined ? `${indent}# ${key}: …` : `${indent}${key}: ${inline(value)}`,
    ];
  });
}

/** Values that the description does not mention. */
function alternatives({ enum: values = [], description = "" }: JsonSchema): string | undefined {
  const missing = values.some((value) => !description.includes(`\`${value}\``));
  return missing ? `One of: ${values.join(", ")}.` : undefined;
}

/** Whether the default of an object leaves all defaults to its settings. */
function isEmpty(value: unknown): boolean {
  return JSON.stringify(value ?? {}) === "{}";
}

function inline(value: unknown): string {
  return stringify(value, { collectionStyle: "flow", lineWidth: 0 }).trim();
}

function wrap(text: string): readonly string[] {
  return text.match(/\S.{0,109}(?=\s|$)/g) ?? [];
}
