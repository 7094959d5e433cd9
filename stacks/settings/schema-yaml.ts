import { stringify } from "yaml";
import type { JsonSchema } from "./settings-docs.ts";

const width = 116;

/**
 * YAML lines with every value of a JSON Schema, its description and its default. A value without a default is a comment.
 *
 * @param overrides - Values in place of defaults, by dotted path.
 */
export function schemaYaml(
  schema: JsonSchema,
  overrides: Readonly<Record<string, unknown>> = {},
): readonly string[] {
  return valueLines(schema, [], overrides);
}

function valueLines(
  { properties = {} }: JsonSchema,
  path: readonly string[],
  overrides: Readonly<Record<string, unknown>>,
): readonly string[] {
  const indent = "  ".repeat(path.length);
  return Object.entries(properties).flatMap(([key, property], index) => {
    const inner = [...path, key];
    const value = overrides[inner.join(".")] ?? property.default;
    const comment = [property.description, alternatives(property)].filter(Boolean).join(" ");
    const lines = wrap(comment, width - indent.length - 2).map((line) => `${indent}# ${line}`);
    const gap = path.length === 0 && index > 0 ? [""] : [];
    if (property.properties !== undefined && hasDefaults(property)) {
      return [...gap, ...lines, `${indent}${key}:`, ...valueLines(property, inner, overrides)];
    }
    if (value === undefined) return [...gap, ...lines, `${indent}# ${key}:`];
    return [...gap, ...lines, `${indent}${key}: ${inlineYaml(value)}`];
  });
}

/**
 * Returns whether any value inside an object has a default. Otherwise, and if the object is optional but requires a value without a
 * default, the object is one value.
 */
function hasDefaults({ properties = {}, required = [] }: JsonSchema): boolean {
  if (required.some((key) => properties[key]?.default === undefined)) return false;
  return Object.values(properties).some(
    (value) => value.default !== undefined || hasDefaults(value),
  );
}

/** Alternatives that the description does not mention. */
function alternatives({ enum: values = [], description = "" }: JsonSchema): string {
  const missing = values.some((value) => value !== "" && !description.includes(`\`${value}\``));
  return missing ? `One of ${values.filter((value) => value !== "").join(", ")}.` : "";
}

function inlineYaml(value: unknown): string {
  return stringify(value, {
    collectionStyle: "flow",
    defaultStringType: "PLAIN",
    lineWidth: 0,
  }).trimEnd();
}

function wrap(text: string, columns: number): readonly string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").filter((word) => word !== "")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else lines.push(word);
  }
  return lines;
}
