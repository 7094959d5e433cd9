import { existsSync } from "node:fs";
import { join } from "node:path";
import { renderValue } from "../../contract/issue-lines.ts";
import { type ModelSpec, modelNameRule, modelSpecFile } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { SettingsError } from "./settings-error.ts";
import {
  isMap,
  parseYaml,
  type RejectedFile,
  readText,
  validateSettings,
  yamlFileNames,
} from "./settings-file.ts";

/** Users' model specs: `models/<name>.yaml` each, beside the environments. An invalid file affects only its own model. */

export interface LoadedModels {
  /** Specs by name: the valid files, and the catalogue without the names of rejected files. */
  readonly models: ReadonlyMap<string, ModelSpec>;
  readonly rejected: readonly RejectedFile[];
}

const extension = ".yaml";

/** Folder of the users' model specs in a folder of environments. */
export function modelFolder(environmentFolder: string): string {
  return join(environmentFolder, "models");
}

/**
 * Model spec in a YAML file, with defaults filled in.
 *
 * @param name - Name of the file without its extension, which is the name of the model.
 */
export function parseModel(name: string, file: string, yaml: string): ModelSpec {
  const nameRule = modelNameRule(name);
  if (nameRule !== undefined) {
    throw new SettingsError([`${file}: name ${nameRule}, got ${renderValue(name)}`]);
  }
  if (modelCatalogue.has(name)) {
    throw new SettingsError([
      `${file}: ${renderValue(name)} is a model of the catalogue; use another name`,
    ]);
  }
  const input = parseYaml(file, yaml) ?? {};
  if (!isMap(input)) {
    throw new SettingsError([`${file}: must be a map of settings, got ${renderValue(input)}`]);
  }
  if (input.name !== undefined) {
    throw new SettingsError([
      `${file}: name must be omitted, because the file name is the name of the model, got ${renderValue(input.name)}`,
    ]);
  }
  return { name, ...validateSettings(modelSpecFile, file, input) };
}

/** Returns the models of the catalogue and those of `folder`, which may be missing. */
export function loadModels(folder: string): LoadedModels {
  const models = new Map(modelCatalogue);
  const rejected: RejectedFile[] = [];
  for (const entry of existsSync(folder) ? yamlFileNames(folder, "models") : []) {
    const file = join(folder, entry);
    const name = entry.replace(/\.ya?ml$/, "");
    try {
      if (!entry.endsWith(extension)) {
        throw new SettingsError([`${file}: the name of the file must end in ${extension}`]);
      }
      models.set(name, parseModel(name, file, readText(file)));
    } catch (error) {
      if (!(error instanceof SettingsError)) throw error;
      rejected.push({ name, lines: error.lines });
      models.delete(name);
    }
  }
  return { models, rejected };
}
