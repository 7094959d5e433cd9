import { basename, join } from "node:path";
import { type LoadedModels, loadModels, modelFolder } from "./model-files.ts";
import { type EnvironmentSettings, parseEnvironment, type StackName } from "./settings.ts";
import { SettingsError } from "./settings-error.ts";
import { type RejectedFile, readText, yamlFileNames } from "./settings-file.ts";

/** Environments of a folder: `<name>.yaml` each. An invalid file affects only its own environment. */

export interface LoadedEnvironments {
  /** Environments whose files match their stack's schema, by name. */
  readonly environments: readonly EnvironmentSettings[];
  readonly rejected: readonly RejectedFile[];
}

/**
 * Longest name of an environment. Docker limits a host name to 63 characters, and the longest host name is
 * `<environment>-triton-onnx`.
 */
const maxNameLength = 40;

/** Error message for an invalid name of an environment; undefined if it is valid. */
export function environmentNameError(name: string): string | undefined {
  const pattern = new RegExp(`^[a-z]([-a-z0-9]{0,${maxNameLength - 2}}[a-z0-9])?$`);
  return pattern.test(name)
    ? undefined
    : `name must be lower-case letters, digits and '-', start with a letter and have at most ${maxNameLength} characters, got '${name}'`;
}

const extension = ".yaml";

export function environmentFile(folder: string, name: string): string {
  return join(folder, `${name}${extension}`);
}

/** Reads every environment of `folder`. */
export function loadEnvironments(folder: string): LoadedEnvironments {
  const environments: EnvironmentSettings[] = [];
  const rejected: RejectedFile[] = [];
  const models = loadModels(modelFolder(folder));
  for (const entry of yamlFileNames(folder, "environments")) {
    const file = join(folder, entry);
    const name = entry.replace(/\.ya?ml$/, "");
    try {
      environments.push(readEnvironmentFile(name, file, models));
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      rejected.push({ name, lines: error.lines, valid: error.valid });
    }
  }
  if (environments.length + rejected.length === 0) {
    throw new SettingsError([`${folder}: has no environments (<name>${extension})`]);
  }
  const isRejected = (name: string) => rejected.some((other) => other.name === name);
  return { environments: environments.filter(({ name }) => !isRejected(name)), rejected };
}

function readEnvironmentFile(
  name: string,
  file: string,
  models: LoadedModels,
): EnvironmentSettings {
  const entry = basename(file);
  if (!entry.endsWith(extension)) {
    throw new SettingsError([`${file}: the name of the file must end in ${extension}`]);
  }
  const nameError = environmentNameError(name);
  if (nameError !== undefined) throw new SettingsError([`${file}: ${nameError}`]);
  return parseEnvironment(name, file, readText(file), models);
}

/** Stacks of the shipped environments with the defaults of their stacks. */
export const shippedStacks = {
  "single-gpu": "single-gpu",
  "multi-gpu-4x": "multi-gpu",
  "kind-local": "kind",
  "k8s-gpu": "kubernetes",
} as const satisfies Readonly<Record<string, StackName>>;
export type ShippedEnvironment = keyof typeof shippedStacks;
export const shippedEnvironments = Object.keys(shippedStacks) as ShippedEnvironment[];

/** Further environments in `environments/`: examples with other settings than the defaults. */
export const exampleStacks = {
  search: "single-gpu",
  marketplace: "single-gpu",
} as const satisfies Readonly<Record<string, StackName>>;
export type ExampleEnvironment = keyof typeof exampleStacks;
export const exampleEnvironments = Object.keys(exampleStacks) as ExampleEnvironment[];
