import { stat } from "node:fs/promises";
import { namedModel } from "../../cli/model/named-model.ts";
import { linkedRepository } from "../../cli/model/served-models.ts";
import { requireTower } from "../../contract/model-shapes.ts";
import { type Modality, type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { ensureConverted } from "../../model-tools/convert/convert-model.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { modelInfo } from "../../model-tools/files/model-info.ts";
import { architectureOf } from "../../model-tools/generate/architectures.ts";
import {
  ensureGeneratedModel,
  ensureTinyModel,
  modelFile,
} from "../../model-tools/generate/generate.ts";
import { type BenchTower, type ServerLoad, towerName } from "./loads.ts";

export interface BenchModel {
  /** Settings of the server that serves it. */
  readonly settings: Readonly<Partial<Record<ServerEnvName, string>>>;
  /** Original model file, for the server and the baseline. */
  readonly standard: string;
  /** File that the ceiling runs, as the server does. */
  readonly ceiling: string;
  /** Optimised models derived from it, fp32 first. */
  readonly optimised: readonly OptimisedModel[];
}

/** Optimised model, and the agreement of its embeddings with those of the original. */
interface OptimisedModel {
  readonly modelPath: string;
  readonly precision: "fp32" | "int8";
  /** Applied optimisations. */
  readonly parts: readonly string[];
  readonly images: number;
  readonly minCosine: number;
}

/** Tower of a value of `--model`: `<model>[:image|:text]`. Without a modality, all towers of the model. */
export function benchTowers(value: string): readonly BenchTower[] {
  const [, name = "", modality] = /^(.*?)(?::(image|text))?$/.exec(value) ?? [];
  const spec = namedModel(name);
  const modalities = (modality === undefined ? Object.keys(spec.towers) : [modality]) as Modality[];
  for (const one of modalities) requireTower(spec, one);
  return modalities.map((one) => ({ model: name, modality: one }));
}

/** Files and server settings of the models of loads, by `Load.model`. Missing files are generated with random weights. */
export async function benchModels(
  chosen: readonly ServerLoad[],
  towers: readonly BenchTower[],
  onProgress: (line: string) => void,
): Promise<Readonly<Record<string, BenchModel>>> {
  const models: Record<string, BenchModel> = {};
  for (const tower of towers) models[towerName(tower)] = await towerModel(tower, onProgress);
  if (towers.length > 0) return models;
  for (const model of new Set(chosen.map((load) => load.model))) {
    const standard =
      model === "tiny"
        ? await ensureTinyModel(defaultModel)
        : await generated(defaultModel, "image", onProgress);
    const needsInt8 = chosen.some(
      (load) => load.model === model && load.subjects.includes("server-int8"),
    );
    const optimised = await readOptimisedModel(
      "fp32",
      await ensureOptimised(defaultModel, standard),
    );
    models[model] = {
      settings: {
        ...(await settingsOf(defaultModel, "image", standard)),
        MODEL_PRECISION: "fp32-optimised",
      },
      standard,
      ceiling: optimised.modelPath,
      optimised: [
        optimised,
        ...(needsInt8
          ? [
              await readOptimisedModel(
                "int8",
                await ensureConverted(defaultModel, standard, "int8", onProgress),
              ),
            ]
          : []),
      ],
    };
  }
  return models;
}

/**
 * Reads precision and agreement of an optimised model from its manifest.
 *
 * @param modelPath - Path of the model file; the manifest `<file>.json` lies beside it.
 */
async function readOptimisedModel(
  precision: OptimisedModel["precision"],
  modelPath: string,
): Promise<OptimisedModel> {
  const { precision: part, agreement } = await modelInfo(modelPath);
  return { modelPath, precision, parts: [part!], ...agreement! };
}

/** Tower of a model: images with the optimised file, as `clipstack serve` does, texts with the standard one. */
async function towerModel(
  { model, modality }: BenchTower,
  onProgress: (line: string) => void,
): Promise<BenchModel> {
  const spec = namedModel(model);
  const file = modelFile(spec, fp32Kinds[modality]);
  const isMissing = (await stat(file).catch(() => undefined)) === undefined;
  if (isMissing && modality === "image" && architectureOf(spec, "full").name === "stand-in") {
    throw new UserError(
      `${model} has no file: run 'npx clipstack model export ${model}', with --random-weights if its weights are unavailable`,
    );
  }
  const standard = await generated(spec, modality, onProgress);
  const settings = await settingsOf(spec, modality, standard);
  if (modality === "text") return { settings, standard, ceiling: standard, optimised: [] };
  const optimised = await readOptimisedModel("fp32", await ensureOptimised(spec, standard));
  return {
    settings: { ...settings, MODEL_PRECISION: "fp32-optimised" },
    standard,
    ceiling: optimised.modelPath,
    optimised: [optimised],
  };
}

async function generated(
  spec: ModelSpec,
  modality: Modality,
  onProgress: (line: string) => void,
): Promise<string> {
  let isAnnounced = false;
  return await ensureGeneratedModel(
    spec,
    () => {
      if (!isAnnounced) onProgress(`generating ${spec.name} with random weights`);
      isAnnounced = true;
    },
    modality,
  );
}

/** Settings of a server with one tower. */
async function settingsOf(
  spec: ModelSpec,
  modality: Modality,
  file: string,
): Promise<Partial<Record<ServerEnvName, string>>> {
  return {
    ...modelSettings([withModalities(spec, [modality])]),
    MODEL_REPOSITORY: await linkedRepository([{ spec, files: { [modality]: file } }]),
  };
}
