import { Batcher } from "../../inference/session/batcher.ts";
import { embeddingsOf } from "../../inference/session/embeddings.ts";
import type { Embedder, EmbedderObserver } from "./embedder.ts";
import { openServerModel, type ServerModel, type ServerModelOptions } from "./server-model.ts";

export interface OnnxEmbedderOptions {
  readonly maxBatchSize: number;
  readonly maxQueueDelayMicroseconds: number;
  readonly observer?: EmbedderObserver;
}

/**
 * Open a model, and embed with it.
 *
 * @throws {InferenceError} `model` when the file is missing, cannot be loaded, or is another model
 */
export async function openOnnxEmbedder(
  options: ServerModelOptions & OnnxEmbedderOptions,
): Promise<Embedder> {
  return createOnnxEmbedder(await openServerModel(options), options);
}

/** ONNX Runtime in this process, with dynamic batching. The embedder closes the model. */
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
