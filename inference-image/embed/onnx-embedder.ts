import { availableParallelism } from "node:os";
import { openclipVitB32, openclipVitB32U8, pixelBytes } from "../../contract/model-signature.ts";
import type { ModelPrecision, ServerEnv } from "../../contract/server-env.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { Batcher } from "../../inference/session/batcher.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import { openSession } from "../../inference/session/onnx-session.ts";
import { SessionPool } from "../../inference/session/session-pool.ts";
import {
  InferenceError,
  type InferOptions,
  type ModelSession,
} from "../../inference/session/types.ts";
import { type SelectedModel, selectModel } from "../../model-tools/prepared-file.ts";
import type { Embedder, EmbedderObserver } from "./embedder.ts";

export interface OnnxEmbedderOptions {
  readonly maxBatchSize: number;
  readonly maxQueueDelayMicroseconds: number;
  readonly observer?: EmbedderObserver;
}

/** Embeds with ONNX Runtime in this process, with dynamic batching. The embedder closes the model. */
export function createOnnxEmbedder(model: ServerModel, options: OnnxEmbedderOptions): Embedder {
  const { session, toInput } = model;
  const { maxBatchSize, maxQueueDelayMicroseconds, observer } = options;
  const batcher = new Batcher(session, {
    maxBatchSize,
    maxQueueDelayMicroseconds,
    dispatch: "eager",
    onExecution: ({ batchSize, requests, inferUs, error }) => {
      if (error !== undefined) return;
      observer?.batch({ images: batchSize, inferSeconds: inferUs / 1e6 });
      for (const { timing } of requests) observer?.queued(timing.queueUs / 1e6);
    },
  });

  return {
    async embed(images, { signal, onTiming } = {}) {
      const parts: Promise<readonly Float32Array[]>[] = [];
      const longest = { queueSeconds: 0, inferSeconds: 0 };
      const partSize = Math.min(maxBatchSize, Math.ceil(images.length / (session.instances ?? 1)));
      for (let first = 0; first < images.length; first += partSize) {
        const part = images.slice(first, first + partSize);
        const { tensor, inputs } = toInput(part);
        parts.push(
          batcher.infer([tensor], { signal, inputs }).then(({ outputs, timing }) => {
            longest.queueSeconds = Math.max(longest.queueSeconds, timing.queueUs / 1e6);
            longest.inferSeconds = Math.max(longest.inferSeconds, timing.computeInferUs / 1e6);
            return embeddingsOf(outputs[0], part.length, first);
          }),
        );
      }
      const vectors = (await Promise.all(parts)).flat();
      onTiming?.(longest);
      return vectors;
    },
    announce: () => batcher.announce(),
    ready: async () => model.alive,
    get waitingImages() {
      return batcher.queuedItems;
    },
    async close() {
      await batcher.drain();
      await session.close();
    },
  };
}

export interface ServerModelOptions {
  /** Path of the model of precision `fp32`. */
  readonly modelPath: string;
  /** Selects the file, as `MODEL_PRECISION`. @default "fp32" */
  readonly precision?: ModelPrecision;
  /** Threads of all instances together; 0 is one per core that this process may use. */
  readonly intraOpThreads: number;
  /**
   * Number of sessions that run batches in parallel, each with its share of the threads and its own copy of the weights.
   *
   * @default 1
   */
  readonly instances?: number;
  /** @default "cpu" */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /** Called when the runtime's thread has started to open the model. */
  readonly onOpening?: () => void;
  /** Called when the runtime's thread exits unexpectedly. The session is unusable then. */
  readonly onDeath?: (error: InferenceError) => void;
}

/** Loaded and warm model of the backend `onnxruntime`. */
export interface ServerModel extends SelectedModel {
  readonly session: ModelSession;
  /** False once the runtime's thread has exited unexpectedly. */
  readonly alive: boolean;
  readonly toInput: (images: readonly Uint8Array[]) => ModelInput;
}

export interface ModelInput {
  readonly tensor: Tensor;
  /** As in {@link InferOptions}: `copied` if the tensor shares the memory of the image. */
  readonly inputs: NonNullable<InferOptions["inputs"]>;
}

/**
 * Opens the file of a model that `precision` selects, and runs it once per instance.
 *
 * @throws {InferenceError} `model` if the file is missing, cannot be loaded, was derived from another model, or has other
 *   inputs and outputs than `openclip_vit_b32` or `openclip_vit_b32_u8`
 */
export async function openServerModel(options: ServerModelOptions): Promise<ServerModel> {
  const { modelPath, precision = "fp32", onDeath } = options;
  const selected = await selectModel(modelPath, precision).catch((error: Error) => {
    throw new InferenceError("model", error.message, { cause: error });
  });
  let alive = true;
  const session = await openInstances(selected.path, {
    ...options,
    onDeath(error) {
      alive = false;
      onDeath?.(error);
    },
  });
  return {
    ...selected,
    session,
    toInput: inputConverterOf(selected.path, session),
    get alive() {
      return alive;
    },
  };
}

async function openInstances(
  modelPath: string,
  options: ServerModelOptions,
): Promise<ModelSession> {
  const { instances = 1 } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const opening = threadShares(threads, instances).map((intraOpThreads) =>
    openInstance(modelPath, { ...options, intraOpThreads }),
  );
  try {
    const [first, ...more] = await Promise.all(opening);
    return more.length === 0 ? first! : new SessionPool([first!, ...more]);
  } catch (error) {
    const results = await Promise.allSettled(opening);
    await Promise.all(results.map((result) => "value" in result && result.value.close()));
    throw error;
  }
}

/** Distributes threads evenly over the instances, at least one each. */
function threadShares(threads: number, instances: number): readonly number[] {
  const [share, rest] = [Math.floor(threads / instances), threads % instances];
  return Array.from({ length: instances }, (_, index) =>
    Math.max(1, index < rest ? share + 1 : share),
  );
}

async function openInstance(modelPath: string, options: ServerModelOptions): Promise<ModelSession> {
  const { intraOpThreads, executionProvider, onOpening, onDeath } = options;
  const session = await openSession({
    modelPath,
    intraOpThreads,
    executionProvider,
    onOpening,
    onDeath,
  });
  try {
    await session.run([inputConverterOf(modelPath, session)([new Uint8Array(pixelBytes)]).tensor]);
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

type Signature = Pick<ModelSession, "inputs" | "outputs">;

/** @throws {InferenceError} `model` if the model has other inputs or outputs */
function inputConverterOf(modelPath: string, session: Signature): ServerModel["toInput"] {
  const got = signatureText(session);
  if (got === signatureText(openclipVitB32)) return fp32Input;
  if (got === signatureText(openclipVitB32U8)) return uint8Input;
  const expected = `${signatureText(openclipVitB32)}, or ${signatureText(openclipVitB32U8)}`;
  throw new InferenceError("model", `${modelPath}: must be ${expected}, got ${got}`);
}

/** `image FP32 [3, 224, 224] -> embedding FP32 [512]` */
function signatureText({ inputs, outputs }: Signature): string {
  const list = (specs: Signature["inputs"]) =>
    specs.map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`).join(", ");
  return `${list(inputs)} -> ${list(outputs)}`;
}

/** Copies each image once: several images here, a single one in the batcher. */
function uint8Input(images: readonly Uint8Array[]): ModelInput {
  const [image] = images;
  if (images.length !== 1 || image === undefined) {
    return { tensor: pixelTensor(images), inputs: "transferred" };
  }
  const [{ name, dataType, dims }] = openclipVitB32U8.inputs;
  return { tensor: { name, dataType, shape: [1, ...dims], data: image }, inputs: "copied" };
}

function fp32Input(images: readonly Uint8Array[]): ModelInput {
  return { tensor: imageTensor(images), inputs: "transferred" };
}
