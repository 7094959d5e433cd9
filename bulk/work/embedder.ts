import { existsSync } from "node:fs";
import { join } from "node:path";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { TritonError } from "../../client/triton/transport.ts";
import {
  configuredFingerprint,
  decodedFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import { imageBytes, imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { trainedWeightsCommand } from "../../contract/models/trained-weights.ts";
import { modelPath } from "../../contract/repository-files.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import { openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { payloadFormatOf } from "../../inference/session/payload-format.ts";
import { selectModel } from "../../model-tools/files/prepared-file.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";
import { withRetries } from "../store/retry.ts";
import type { BulkEnv } from "./settings.ts";

/** Embeds batches of preprocessed images. */
export interface BatchEmbedder {
  readonly fingerprint: string;
  readonly maxBatchSize: number;
  /** Batches that are sent before the first one returns, so that the model does not wait for the next one. */
  readonly concurrency: number;
  /** Memory of the input of one image in bytes. */
  readonly inputBytes: number;
  /** @param images - `[height, width, 3]` 8-bit RGB each, at most {@link maxBatchSize} */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

/** @throws {UserError} if the model does not fit, or has no fingerprint */
export async function openEmbedder(spec: ModelSpec, env: BulkEnv): Promise<BatchEmbedder> {
  const { maximum } = spec.batching;
  const common = {
    maxBatchSize: Math.min(maximum, env.MAX_BATCH_SIZE ?? maximum),
    inputBytes: imageBytes(imageTowerOf(spec), "fp32")!,
  };
  const open = env.BACKEND === "triton" ? openTriton : openLocal;
  return { ...common, ...(await open(spec, env)) };
}

type OpenedBackend = Omit<BatchEmbedder, "maxBatchSize" | "inputBytes">;

async function openLocal(spec: ModelSpec, env: BulkEnv): Promise<OpenedBackend> {
  const file = env.BULK_MODEL_FILE ?? join(env.MODEL_REPOSITORY, modelPath(spec, "fp32"));
  const { path } = await selectModel(file, env.MODEL_PRECISION).catch((cause: Error) => {
    throw new UserError(cause.message, { cause });
  });
  if (!existsSync(path)) {
    const command = trainedWeightsCommand(spec) ?? "generate";
    throw new UserError(
      `${path}: must exist; write it with 'npx clipstack model ${command} ${spec.name}', or select a file with --weights or BULK_MODEL_FILE`,
    );
  }
  const local = await openLocalEmbedder({
    spec,
    modelPath: path,
    intraOpThreads: env.INTRA_OP_THREADS,
    executionProvider: env.EXECUTION_PROVIDER,
  });
  const weights = fingerprintOf(preprocessingSha256(spec, "image"), await weightsIdentity(path));
  return {
    fingerprint: decodedFingerprint(weights, env.PREPROCESSING),
    concurrency: 2,
    embed: (images) => local.embedPixels(images),
    close: () => local.close(),
  };
}

async function openTriton(spec: ModelSpec, env: BulkEnv): Promise<OpenedBackend> {
  const [target] = env.TRITON_GRPC_URLS as [string];
  const transport = openGrpcTransport({ target });
  const model = tritonModelName(spec, env.TRITON_MODEL_KIND);
  const call = { timeoutMs: env.TRITON_TIMEOUT_MS };
  const retried = <T>(work: () => Promise<T>) =>
    withRetries(work, isTransient, env.BULK_PATIENCE_SECONDS);
  const rejected = (problem: string) => new UserError(`${target}: ${problem}`);
  const metadata = await retried(() => transport.modelMetadata(model, call));
  const config = (await retried(() =>
    transport.modelConfig(model, call),
  )) as unknown as ModelConfig;
  const format = payloadFormatOf(spec, model, metadata, rejected);
  if (format.input !== "pixels") {
    throw rejected(`${model} must take pixels or normalised images, because workers decode`);
  }
  const fingerprint = configuredFingerprint(config, metadata.versions);
  if (fingerprint === undefined) {
    throw rejected(`${model} must have the parameter fingerprint in its configuration, got none`);
  }
  const { output } = imageTowerOf(spec);
  return {
    fingerprint: decodedFingerprint(fingerprint, env.PREPROCESSING),
    concurrency: 4,
    async embed(images) {
      const outputs = await retried(() =>
        transport.infer(model, [format.tensor(images)], { ...call, outputs: [output] }),
      );
      const tensor = outputs.find(({ name }) => name === output);
      return embeddingsOf(tensor, { count: images.length, width: spec.embedding.width });
    },
    close: () => transport.close(),
  };
}

const isTransient = (error: unknown) =>
  error instanceof TritonError && (error.code === "unavailable" || error.code === "timeout");
