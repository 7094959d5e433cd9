import { z } from "zod";
import { schemaYaml } from "./schema-yaml.ts";
import { type StackName, stackSchemas } from "./settings.ts";
import type { JsonSchema } from "./settings-docs.ts";

/**
 * Text of a new environment file: every setting with its description and default.
 *
 * @param schemaFile - Path of the stack's JSON Schema, relative to the file.
 */
export function environmentTemplate(name: string, stack: StackName, schemaFile: string): string {
  const schema = z.toJSONSchema(stackSchemas[stack], { io: "input" }) as JsonSchema;
  const overrides = uniqueNames(name)[stack] ?? {};
  const differing = Object.keys(overrides).map((path) => `, except ${path}, which must be unique`);
  return [
    `# yaml-language-server: $schema=${schemaFile}`,
    "#",
    `# Environment ${name}. All values are defaults${differing.join("")}: delete what you do not change.`,
    "# docs/settings.md has the ranges of all values.",
    "",
    `stack: ${stack}`,
    "",
    ...schemaYaml(schema, overrides),
    "",
  ].join("\n");
}

/** Returns settings, by path, that need another value than the default so that two environments of the stack do not collide. */
function uniqueNames(name: string): Partial<Record<StackName, Readonly<Record<string, string>>>> {
  return {
    kind: { "cluster.name": name },
    kubernetes: { namespace: name },
    bulk: { namespace: name },
  };
}
