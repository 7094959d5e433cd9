import { dirname, join } from "node:path";
import type { FastifyBaseLogger } from "fastify";
import {
  decodedFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds, modelPath } from "../../contract/repository-files.ts";
import type { ModelPrecision, ServerEnv } from "../../contract/server/server-env.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import type { ServedModel } from "../models/served-models.ts";
import { type TokenizerThread, tokenizerOf } from "../models/tokenizer-thread.ts";
import { createOnnxEmbedder, createOnnxTextEmbedder } from "./onnx-embedder.ts";
import {
  allOrNone,
  openServerModel,
  type ServerModel,
  type ServerModelOptions,
} from "./server-model.ts";

/** Models of the backend `onnxruntime` that are being opened. */
export interface OpeningModels {
  /** Resolves once the first thread is reading its file. */
  readonly begun: Promise<void>;
  /** Resolves when all files are open and warm; rejects with the first failure, and closes the others. */
  readonly opened: Promise<readonly OpenedModel[]>;
  /** Rejects when the thread of a model exits unexpectedly; the server can then no longer embed. */
  readonly died: Promise<never>;
}

/** Opened towers of one model, at least one. */
export interface OpenedModel {
  readonly spec: ModelSpec;
  readonly image?: ServerModel | undefined;
  readonly text?: ServerModel | undefined;
  /** Present if `text` is. */
  readonly tokenizer?: TokenizerThread | undefined;
}

/** Starts to open the files of all models. */
export function openModels(settings: ServerEnv): OpeningModels {
  let onDeath: (error: Error) => void = () => {};
  const died = new Promise<never>((_, reject) => {
    onDeath = reject;
  });
  died.catch(() => {});
  let onOpening = () => {};
  const begun = new Promise<void>((resolve) => {
    onOpening = resolve;
  });
  const common = {
    precision: settings.MODEL_PRECISION,
    intraOpThreads: settings.INTRA_OP_THREADS,
    instances: settings.MODEL_INSTANCES,
    executionProvider: settings.EXECUTION_PROVIDER,
    onOpening,
    onDeath,
  };
  const opening = settings.MODELS.map((spec) => openModel(spec, settings.MODEL_REPOSITORY, common));
  const opened = allOrNone(opening, closeModel);
  opened.catch(() => {});
  return { begun, opened, died };
}

type CommonOptions = Omit<ServerModelOptions, "spec" | "modality" | "modelPath">;

async function openModel(
  spec: ModelSpec,
  repository: string,
  common: CommonOptions,
): Promise<OpenedModel> {
  const open = (modality: Modality, modelPath: string) =>
    openServerModel({
      ...common,
      precision: precisionOf(modality, common),
      spec,
      modality,
      modelPath,
    });
  const { image, text } = spec.towers;
  const pathOf = (modality: Modality) => join(repository, modelPath(spec, fp32Kinds[modality]));
  const [images, texts] = await allOrNone(
    [
      image === undefined ? undefined : open("image", pathOf("image")),
      text === undefined ? undefined : open("text", pathOf("text")),
    ].map((opening) => Promise.resolve(opening)),
    (model) => model?.session.close(),
  );
  if (texts === undefined) return { spec, image: images };
  try {
    return {
      spec,
      image: images,
      text: texts,
      tokenizer: await tokenizerOf(spec, dirname(pathOf("text"))),
    };
  } catch (error) {
    await Promise.all([images?.session.close(), texts.session.close()]);
    throw error;
  }
}

/** The optimisation of `fp32-optimised` is one of image towers: text towers are served as they are. */
function precisionOf(modality: Modality, { precision }: CommonOptions): ModelPrecision | undefined {
  return modality === "text" && precision === "fp32-optimised" ? "fp32" : precision;
}

async function closeModel({ image, text, tokenizer }: OpenedModel): Promise<void> {
  await Promise.all([image?.session.close(), text?.session.close(), tokenizer?.close()]);
}

export async function closeModels(models: readonly OpenedModel[]): Promise<void> {
  await Promise.all(models.map(closeModel));
}

/** Creates the embedders of opened models, and logs their files. */
export function serveModels(
  models: readonly OpenedModel[],
  settings: ServerEnv,
  metrics: EmbedMetrics,
  log: FastifyBaseLogger,
): readonly ServedModel[] {
  const fingerprintOfModel = ({ spec, modality, weights }: ServerModel) =>
    decodedFingerprint(
      fingerprintOf(preprocessingSha256(spec, modality), weights),
      modality === "image" ? settings.PREPROCESSING : "exact",
    );
  const optionsOf = (model: ServerModel) => ({
    maxBatchSize: settings.MAX_BATCH_SIZE,
    maxQueueDelayMicroseconds: settings.MAX_QUEUE_DELAY_MICROSECONDS,
    observer: metrics.tower(model.spec.name, model.modality),
    fingerprint: fingerprintOfModel(model),
  });
  return models.map(({ spec, image, text, tokenizer }): ServedModel => {
    for (const model of [image, text]) {
      if (model !== undefined) logModel(log, model, settings);
    }
    return {
      spec,
      hasRandomWeights: [image, text].some((model) => model?.manifest?.weights === "random"),
      image: image && {
        spec,
        embedder: createOnnxEmbedder(image, optionsOf(image)),
      },
      text: text &&
        tokenizer && {
          spec,
          tokenizer,
          embedder: createOnnxTextEmbedder(text, optionsOf(text)),
        },
    };
  });
}

function logModel(
  log: FastifyBaseLogger,
  { spec, modality, path, manifest }: ServerModel,
  { MODEL_PRECISION: precision }: ServerEnv,
): void {
  const facts = { model: spec.name, modality, path, ...manifest, precision };
  if (manifest?.weights === "random") {
    log.warn(
      facts,
      `${spec.name}: the ${modality} weights are random, so embeddings are meaningless`,
    );
  } else {
    log.info(facts, `${spec.name}: ${modality} tower loaded`);
  }
}
