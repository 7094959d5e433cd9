import { Option } from "commander";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { UserError } from "../../contract/user-error.ts";
import { loadModels, modelFolder } from "../../stacks/settings/model-files.ts";
import { displayPath, environmentsFolder } from "../shared/project.ts";

/** Description of the argument `[model]` of commands. */
export const modelArgument = `model of the catalogue or of environments/models/<name>.yaml; default: ${defaultModel.name}`;

/** Option that selects a tower. */
export function modalityOption(defaultText = ""): Option {
  const description = `tower: of images or of texts${defaultText}`;
  return new Option("--modality <name>", description).choices(["image", "text"]);
}

/** @throws {UserError} if the model has no tower for images, or for texts */
export function requireTower({ name, towers }: ModelSpec, modality: Modality): void {
  const article = modality === "image" ? "an" : "a";
  if (towers[modality] === undefined) {
    throw new UserError(`model ${name} must have ${article} ${modality} tower`);
  }
}

/** @throws {UserError} if the model has no image tower */
export function requireImages(spec: ModelSpec): void {
  requireTower(spec, "image");
}

/**
 * Spec of a model in the catalogue or in `environments/models/`; the default model if `name` is omitted.
 *
 * @throws {UserError} if there is no such model, or its file is invalid
 */
export function namedModel(name?: string): ModelSpec {
  if (name === undefined) return defaultModel;
  const { models, rejected } = loadModels(displayPath(modelFolder(environmentsFolder())) || ".");
  const spec = models.get(name);
  if (spec !== undefined) return spec;
  const invalid = rejected.find((model) => model.name === name);
  if (invalid !== undefined) throw new UserError(invalid.lines.join("\n"));
  throw new UserError(`model must be one of ${[...models.keys()].join(", ")}, got '${name}'`);
}
