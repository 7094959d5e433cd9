import type { z } from "zod";
import { kindSettings } from "./kind-settings.ts";
import { kubernetesSettings } from "./kubernetes-settings.ts";
import { multiGpuSettings } from "./multi-gpu-settings.ts";
import { parseYaml } from "./parse-yaml.ts";
import { SettingsError } from "./settings-error.ts";
import { issueLines, renderValue } from "./settings-issues.ts";
import { singleGpuSettings } from "./single-gpu-settings.ts";

export const stackSchemas = {
  "single-gpu": singleGpuSettings,
  "multi-gpu": multiGpuSettings,
  kind: kindSettings,
  kubernetes: kubernetesSettings,
} as const;
export type StackName = keyof typeof stackSchemas;
export const stackNames = Object.keys(stackSchemas) as StackName[];

export type StackSettings = {
  readonly [Stack in StackName]: z.infer<(typeof stackSchemas)[Stack]>;
};

/** One environment: a stack and its settings. */
export type EnvironmentSettings = {
  readonly [Stack in StackName]: {
    /** Name of the environment and of its Terraform stack. */
    readonly name: string;
    readonly stack: Stack;
    readonly settings: StackSettings[Stack];
  };
}[StackName];

/**
 * Settings of a stack, with defaults filled in.
 *
 * @param file - Name of the file, for messages.
 * @param yaml - Settings without `stack`.
 * @throws {SettingsError}
 */
export function parseSettings<Stack extends StackName>(
  stack: Stack,
  file: string,
  yaml: string,
): StackSettings[Stack] {
  return validate(stack, file, parseYaml(file, yaml) ?? {});
}

/**
 * Environment in a YAML file, with defaults filled in.
 *
 * @param file - Name of the file, for messages.
 * @throws {SettingsError}
 */
export function parseEnvironment(name: string, file: string, yaml: string): EnvironmentSettings {
  const input = parseYaml(file, yaml) ?? {};
  if (!isMap(input)) {
    throw new SettingsError([`${file}: must be a map of settings, got ${renderValue(input)}`]);
  }
  const { stack, ...settings } = input;
  const known = stackNames.join(", ");
  if (stack === undefined) throw new SettingsError([`${file}: stack is required: one of ${known}`]);
  if (!isStackName(stack)) {
    throw new SettingsError([`${file}: stack must be one of ${known}, got ${renderValue(stack)}`]);
  }
  return { name, stack, settings: validate(stack, file, settings) } as EnvironmentSettings;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function isStackName(value: unknown): value is StackName {
  return stackNames.some((stack) => stack === value);
}

function validate<Stack extends StackName>(
  stack: Stack,
  file: string,
  input: unknown,
): StackSettings[Stack] {
  const schema = stackSchemas[stack];
  const result = schema.safeParse(input);
  if (!result.success) {
    const lines = issueLines(result.error.issues, schema, input);
    throw new SettingsError([`${file}:`, ...lines.map((line) => `  ${line}`)]);
  }
  return result.data as StackSettings[Stack];
}
