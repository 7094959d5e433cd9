import type { z } from "zod";
import { renderValue } from "../../contract/issue-lines.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import type { ModelEntry } from "../../contract/server/model-list.ts";
import { bulkSettings } from "./bulk-settings.ts";
import { kindSettings } from "./kind-settings.ts";
import { kubernetesSettings } from "./kubernetes-settings.ts";
import type { LoadedModels } from "./model-files.ts";
import { modelErrors, resolveModels, type WithSpecs } from "./model-settings.ts";
import { multiGpuSettings } from "./multi-gpu-settings.ts";
import { SettingsError } from "./settings-error.ts";
import { isMap, parseYaml, validateSettings } from "./settings-file.ts";
import { singleGpuSettings } from "./single-gpu-settings.ts";
import { validSettings } from "./valid-settings.ts";

export const stackSchemas = {
  "single-gpu": singleGpuSettings,
  "multi-gpu": multiGpuSettings,
  kind: kindSettings,
  kubernetes: kubernetesSettings,
  bulk: bulkSettings,
} as const;
export type StackName = keyof typeof stackSchemas;
export const stackNames = Object.keys(stackSchemas) as StackName[];

export type StackSettings = {
  readonly [Stack in StackName]: WithSpecs<z.infer<(typeof stackSchemas)[Stack]>>;
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
 * @param yaml - Settings without `stack`.
 * @param models - Models that `models` may name. Defaults to the catalogue.
 */
export function parseSettings<Stack extends StackName>(
  stack: Stack,
  file: string,
  yaml: string,
  models: LoadedModels = catalogue,
): StackSettings[Stack] {
  return validate(stack, file, parseYaml(file, yaml) ?? {}, models);
}

/**
 * Environment in a YAML file, with defaults filled in.
 *
 * @param models - Models that `models` may name. Defaults to the catalogue.
 */
export function parseEnvironment(
  name: string,
  file: string,
  yaml: string,
  models: LoadedModels = catalogue,
): EnvironmentSettings {
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
  return { name, stack, settings: validate(stack, file, settings, models) } as EnvironmentSettings;
}

export function isStackName(value: unknown): value is StackName {
  return stackNames.some((stack) => stack === value);
}

function validate<Stack extends StackName>(
  stack: Stack,
  file: string,
  input: unknown,
  models: LoadedModels,
): StackSettings[Stack] {
  const schema: z.ZodType<{ readonly models: readonly ModelEntry[] }> = stackSchemas[stack];
  const withSpecs = (settings: z.infer<typeof schema>) => ({
    ...settings,
    models: resolveModels(file, settings.models, models),
  });
  let settings: z.infer<typeof schema>;
  try {
    settings = validateSettings(schema, file, input);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    const lines = modelErrors(file, input, models);
    const valid = lines.length === 0 ? validSettings(schema, input) : undefined;
    throw new SettingsError(
      [...error.lines, ...lines],
      valid && { ...valid, stack, settings: withSpecs(valid.settings) },
    );
  }
  return withSpecs(settings) as unknown as StackSettings[Stack];
}

const catalogue: LoadedModels = { models: modelCatalogue, rejected: [] };
