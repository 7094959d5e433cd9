import { openclipVitB32, pixelBytes } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import { createBatcher } from "../engine/batcher.ts";
import { imageTensor } from "../engine/image-tensor.ts";
import { embeddingsOf } from "../engine/local-embedder.ts";
import { openSession } from "../engine/onnx-session.ts";
import { EngineError, type ModelSession } from "../engine/types.ts";
import type { Embedder, EmbedderObserver } from "./embedder.ts";

export interface OnnxEmbedderOptions {
  readonly modelPath: string;
  /** 0 is one for each core that this process may use. */
  readonly intraOpThreads: number;
  /** @default "cpu" */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  readonly maxBatchSize: number;
  readonly maxQueueDelayMicroseconds: number;
  readonly observer?: EmbedderObserver;
  /** Called when the runtime dies by itself: nothing can be embedded any more. */
  readonly onDeath?: (error: EngineError) => void;
}

/**
 * ONNX Runtime in this process, with dynamic batching. The model is warm when this resolves.
 *
 * @throws {EngineError} `model` when the file is missing, cannot be loaded, or is another model
 */
export async function openOnnxEmbedder(options: OnnxEmbedderOptions): Promise<Embedder> {
  const { modelPath, intraOpThreads, maxBatchSize, maxQueueDelayMicroseconds, observer } = options;
  let alive = true;
  const session = await openSession({
    modelPath,
    intraOpThreads,
    executionProvider: options.executionProvider,
    onDeath: (error) => {
      alive = false;
      options.onDeath?.(error);
    },
  });
  try {
    checkSignature(modelPath, session);
    await session.run([imageTensor([new Uint8Array(pixelBytes)])]);
  } catch (error) {
    await session.close();
    throw error;
  }

  const batcher = createBatcher(session, {
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
      for (let first = 0; first < images.length; first += maxBatchSize) {
        const part = images.slice(first, first + maxBatchSize);
        parts.push(
          batcher.infer([imageTensor(part)], { signal }).then(({ outputs, timing }) => {
            longest.queueSeconds = Math.max(longest.queueSeconds, timing.queueUs / 1e6);
            longest.inferSeconds = Math.max(longest.inferSeconds, timing.computeInferUs / 1e6);
            return embeddingsOf(outputs[0], part.length);
          }),
        );
      }
      const vectors = (await Promise.all(parts)).flat();
      onTiming?.(longest);
      return vectors;
    },
    announce: () => batcher.announce(),
    ready: async () => alive,
    get waitingImages() {
      return batcher.queuedItems;
    },
    async close() {
      await batcher.drain();
      await session.close();
    },
  };
}

/** @throws {EngineError} `model` */
function checkSignature(modelPath: string, session: ModelSession): void {
  const shown = ({ inputs, outputs }: Pick<ModelSession, "inputs" | "outputs">) => {
    const list = (specs: ModelSession["inputs"]) =>
      specs
        .map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`)
        .join(", ");
    return `${list(inputs)} -> ${list(outputs)}`;
  };
  const expected = shown(openclipVitB32);
  const got = shown(session);
  if (got !== expected) {
    throw new EngineError("model", `${modelPath}: must be ${expected}, got ${got}`);
  }
}
