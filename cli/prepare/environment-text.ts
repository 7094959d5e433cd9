import { existsSync } from "node:fs";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { environmentFile, environmentNameError } from "../../stacks/settings/environment-files.ts";
import { loadModels, modelFolder } from "../../stacks/settings/model-files.ts";
import { type EnvironmentSettings, parseEnvironment } from "../../stacks/settings/settings.ts";
import { readText } from "../../stacks/settings/settings-file.ts";
import { environmentsFolder } from "../shared/project.ts";

/** Environment file that a command changes, as it was before. */
export interface EnvironmentText {
  readonly file: string;
  readonly text: string;
  readonly environment: EnvironmentSettings;
}

/** Reads the file of an environment. */
export function readEnvironmentText(name: string): EnvironmentText {
  const nameError = environmentNameError(name);
  if (nameError !== undefined) throw new UserError(`environment: ${nameError}`);
  const folder = environmentsFolder();
  const file = environmentFile(folder, name);
  if (!existsSync(file)) {
    throw new UserError(`${displayPath(file)} does not exist: environment must be the name of one`);
  }
  const text = readText(file);
  const environment = parseEnvironment(
    name,
    displayPath(file),
    text,
    loadModels(modelFolder(folder)),
  );
  return { file, text, environment };
}
