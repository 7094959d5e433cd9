import { join } from "node:path";
import type { FastifyBaseLogger } from "fastify";
import type { GrpcSecurity } from "../../client/triton/grpc-transport.ts";
import type { ImageDecoding } from "../../contract/fingerprint.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import { daliModels, type ModelKind, tritonModelName } from "../../contract/triton-models.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import type { ServedModel } from "../models/served-models.ts";
import { tokenizerOf } from "../models/tokenizer-thread.ts";
import { createDaliEmbedder, TritonImageEmbedder, TritonTextEmbedder } from "./triton-embedder.ts";
import type { TritonEmbedderOptions } from "./triton-tower.ts";

/**
 * Creates the models of a gateway. Each Triton model has its own pool of Triton servers, so that one without a model still serves the
 * others.
 */
export async function createGateway(
  settings: ServerEnv,
  security: GrpcSecurity | undefined,
  metrics: EmbedMetrics,
  log: FastifyBaseLogger,
): Promise<readonly ServedModel[]> {
  const { TRITON_MODEL_KIND: modelKind, MODEL_REPOSITORY: repository } = settings;
  const pixelKind = daliModels[modelKind as keyof typeof daliModels];
  const textKind: ModelKind = (pixelKind ?? modelKind) === "trt" ? "text-trt" : "text";
  const specs = settings.MODELS;
  // an invalid vocabulary fails before any pool is open
  const tokenizers = await Promise.all(
    specs.map((spec) =>
      spec.towers.text === undefined
        ? undefined
        : tokenizerOf(spec, join(repository, tritonModelName(spec, "text"), "1")),
    ),
  );
  const decodingOf = (modality: Modality): ImageDecoding => {
    if (modality === "text" || modelKind === "jpeg") return "exact";
    return pixelKind === undefined ? settings.PREPROCESSING : "dali";
  };
  const optionsOf = (
    spec: ModelSpec,
    modality: Modality,
    model: string,
  ): TritonEmbedderOptions => ({
    targets: settings.TRITON_GRPC_URLS,
    security,
    timeoutMs: settings.TRITON_TIMEOUT_MS,
    maxBatchSize: settings.MAX_BATCH_SIZE,
    spec,
    model,
    decoding: decodingOf(modality),
    observer: observerOf(metrics, log, spec, modality, model),
  });
  return specs.map((spec, index): ServedModel => {
    const imageModel = tritonModelName(spec, modelKind);
    const textModel = tritonModelName(spec, textKind);
    const tokenizer = tokenizers[index];
    return {
      spec,
      image: spec.towers.image && {
        spec,
        embedder:
          pixelKind === undefined
            ? new TritonImageEmbedder(optionsOf(spec, "image", imageModel))
            : createDaliEmbedder(
                optionsOf(spec, "image", imageModel),
                optionsOf(spec, "image", tritonModelName(spec, pixelKind)),
                settings.MAX_IMAGE_PIXELS,
              ),
      },
      text: tokenizer && {
        spec,
        tokenizer,
        embedder: new TritonTextEmbedder(optionsOf(spec, "text", textModel)),
      },
    };
  });
}

function observerOf(
  metrics: EmbedMetrics,
  log: FastifyBaseLogger,
  spec: ModelSpec,
  modality: Modality,
  model: string,
): TritonEmbedderOptions["observer"] {
  const triton = metrics.triton(model);
  return {
    ...metrics.tower(spec.name, modality),
    ...triton,
    onHealthChange(target, healthy, reason) {
      triton.onHealthChange(target, healthy, reason);
      const subject = { target, healthy, model };
      if (reason === "") log.info(subject, `Triton ${target} is in rotation for ${model}`);
      else log.warn(subject, `Triton ${target} is out of rotation for ${model}: ${reason}`);
    },
  };
}
