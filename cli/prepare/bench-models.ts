import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { readArtefact } from "../../artefact/artefact.ts";
import { environmentModel } from "../../artefact/environment-model.ts";
import type { ModelFiles } from "../../artefact/simulation-types.ts";
import type { BenchEvent } from "../../bench/measure/bench-events.ts";
import type { Modality, ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { type ReferenceModel, referenceModels } from "../../target/reference/reference.ts";
import { modelFilesOf } from "../../verify/verify.ts";
import { namedModel } from "../model/named-model.ts";
import type { SynthesizedFile } from "../shared/artefact.ts";
import { chooseModel } from "./choose-model.ts";

/** Model that a run measures: the named one, the first of the environments, or the default model for addresses. */
export function measuredModel(
  files: readonly SynthesizedFile[],
  name: string | undefined,
): ModelSpec {
  if (files.length === 0) return namedModel(name);
  const specs = files.map(({ file, displayPath }) => {
    const { environment } = readArtefact(file, displayPath);
    const { models } = environment;
    const spec = name === undefined ? models[0] : models.find((model) => model.name === name);
    if (spec !== undefined) return spec;
    const names = models.map((model) => model.name).join(", ");
    throw new UserError(`--model must be a model of ${environment.name}: ${names}, got '${name}'`);
  });
  const [first = defaultModel, ...others] = specs;
  const other = others.find((spec) => spec.name !== first.name);
  if (other === undefined) return first;
  throw new UserError(
    `environments of one run must have the same first model, got ${first.name} and ${other.name}: select one with --model`,
  );
}

/** Images, unless the model embeds only texts. */
export function defaultModality({ towers }: ModelSpec): Modality {
  return towers.image === undefined ? "text" : "image";
}

/** Returns the model file that all environments load, if it is on this machine. */
export function sharedModel(
  files: readonly SynthesizedFile[],
  { spec, modality }: ModelTower,
): string | undefined {
  const models = files.map(({ file, displayPath }) => {
    const artefact = readArtefact(file, displayPath);
    return (
      environmentModel(artefact, spec.name, modality, dirname(resolve(file)), existsSync) ??
      modelFile(spec, fp32Kinds[modality])
    );
  });
  const other = models.findIndex((model) => model !== models[0]);
  if (other < 0) return models[0];
  throw new UserError(
    `environments of one run must load the same model file, got ${models[0]} (${files[0]?.name}) and ${models[other]} (${files[other]?.name}): measure one at a time`,
  );
}

/**
 * Returns the model files that a local simulation serves instead of the mounted ones; undefined if it serves the mounted ones.
 * Missing files of towers that are not measured are generated, because the services load every tower.
 */
export async function simulatedFiles(
  files: readonly SynthesizedFile[],
  measured: ReferenceModel,
  weights: string,
  onEvent: (event: BenchEvent) => void,
): Promise<ModelFiles | undefined> {
  const isFile = weights !== "tiny" && weights !== "generated";
  const models = new Map<string, ReferenceModel>();
  for (const { file, displayPath } of files) {
    const artefact = readArtefact(file, displayPath);
    const chosen = await referenceModels(artefact, dirname(resolve(file)), (spec, modality, own) =>
      spec.name === measured.spec.name && modality === measured.modality
        ? Promise.resolve(measured)
        : chooseModel({ spec, modality }, isFile ? "generated" : weights, onEvent, own),
    );
    for (const model of chosen) models.set(`${model.spec.name} ${model.modality}`, model);
  }
  if (weights === "generated") return undefined;
  return modelFilesOf(isFile ? [measured] : [...models.values()]);
}
