import { Option } from "commander";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { loadModels, modelFolder } from "../../stacks/settings/model-files.ts";
import { environmentsFolder } from "../shared/project.ts";

/** Description of the argument `[model]` of commands. */
export const modelArgument = `model of the catalogue or of environments/models/<name>.yaml; default: ${defaultModel.name}`;

/** Description of the option `--output` of commands that write towers. */
export const outputOption =
  "file of one tower, of images unless --modality is text; default: the model repository of this checkout";

/** Option that selects a tower. */
export function modalityOption(defaultText = ""): Option {
  const description = `tower: of images or of texts${defaultText}`;
  return new Option("--modality <name>", description).choices(["image", "text"]);
}

/** Spec of a model in the catalogue or in `environments/models/`; the default model if `name` is omitted. */
export function namedModel(name?: string): ModelSpec {
  if (name === undefined) return defaultModel;
  const { models, rejected } = loadModels(displayPath(modelFolder(environmentsFolder())) || ".");
  const spec = models.get(name);
  if (spec !== undefined) return spec;
  const invalid = rejected.find((model) => model.name === name);
  if (invalid !== undefined) throw new UserError(invalid.lines.join("\n"));
  throw new UserError(`model must be one of ${[...models.keys()].join(", ")}, got '${name}'`);
}
