import { setMaxListeners } from "node:events";
import type { PixelInput } from "../../contract/model-spec.ts";
import type { PreprocessSettings } from "../../contract/preprocess-parameters.ts";
import type { BytesTensor, Tensor } from "../../contract/tensor.ts";
import { pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import {
  createPreprocessor,
  ImageError,
  type Preprocessor,
} from "../../inference/preprocess/preprocess.ts";
import {
  InferenceError,
  type InferResult,
  type ModelSession,
} from "../../inference/session/types.ts";
import { drainable, type ModelRunner, type RunnerEvents, type RunOptions } from "./model-runner.ts";
import { invalidArgument } from "./oip-error.ts";

/** Input and output of a preprocessing model. */
export function preprocessTensors({ size: { width, height } }: PixelInput) {
  return {
    inputs: [{ name: "encoded", dataType: "BYTES", dims: [1] }],
    outputs: [{ name: "pixels", dataType: "UINT8", dims: [height, width, 3] }],
  } as const satisfies Pick<ModelSession, "inputs" | "outputs">;
}

/**
 * Emulates a Python model that converts image files to pixels with this server's preprocessing. It has no queue: the images of all
 * requests share the threads and the memory of the preprocessor.
 */
export function preprocessRunner(
  { input, maxImagePixels: maxPixels }: PreprocessSettings,
  events: RunnerEvents,
): ModelRunner {
  const preprocessor = createPreprocessor({ maxPixels, mode: "exact" });
  const { inputs, outputs } = preprocessTensors(input);
  let downstreamItems = 0;

  async function infer([encoded]: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const images = (encoded as BytesTensor).data;
    const startedAt = performance.now();
    events.started(images.length);
    downstreamItems += images.length;
    try {
      const pixels = await preprocessAll(preprocessor, input, images, options);
      const inferUs = (performance.now() - startedAt) * 1000;
      const tower = { input: { size: input.size, tensor: outputs[0].name } };
      const results = [pixelTensor(pixels, tower)];
      for (const image of pixels) preprocessor.recycle(image);
      const computeOutputUs = (performance.now() - startedAt) * 1000 - inferUs;
      const timing = { queueUs: 0, computeInputUs: 0, computeInferUs: inferUs, computeOutputUs };
      const batchSize = images.length;
      events.executed({ batchSize, requests: [{ items: batchSize, timing }], inferUs });
      return { outputs: results, timing, batchSize };
    } finally {
      downstreamItems -= images.length;
    }
  }

  const calls = drainable(infer);
  return {
    inputNames: inputs.map(({ name }) => name),
    infer: calls.infer,
    get downstreamItems() {
      return downstreamItems;
    },
    async close() {
      await calls.close();
      await preprocessor.close();
    },
  };
}

/** @throws {OipError} for the first invalid image, by index */
async function preprocessAll(
  preprocessor: Preprocessor,
  input: PixelInput,
  images: readonly Uint8Array[],
  { signal, queueTimeoutMs }: RunOptions,
): Promise<readonly Uint8Array[]> {
  const ended = new AbortController();
  // every image adds a listener
  setMaxListeners(0, ended.signal);
  const end = () => ended.abort();
  signal?.addEventListener("abort", end, { once: true });
  if (signal?.aborted) end();
  const timer = queueTimeoutMs === undefined ? undefined : setTimeout(end, queueTimeoutMs);
  try {
    const work = images.map((image) => preprocessor.run(image, input, { signal: ended.signal }));
    const results = await Promise.allSettled(work);
    return results.map((result, index) => {
      if (result.status === "fulfilled") return result.value;
      const { reason } = result;
      if (reason instanceof ImageError) {
        throw invalidArgument(`image ${index} ${reason.message}`, reason);
      }
      if (ended.signal.aborted)
        throw new InferenceError("expired", "cancelled or timed out in the queue");
      throw reason;
    });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
}
