import { setMaxListeners } from "node:events";
import { openclipPreprocess } from "../../contract/model-signature.ts";
import type { BytesTensor, Tensor } from "../../contract/tensor.ts";
import { pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import {
  createPreprocessor,
  ImageError,
  type Preprocessor,
} from "../../inference/preprocess/preprocess.ts";
import { InferenceError, type InferResult } from "../../inference/session/types.ts";
import { drainable, type ModelRunner, type RunnerEvents, type RunOptions } from "./model-runner.ts";
import { invalidArgument } from "./oip-error.ts";

/**
 * Emulates the Python model `openclip_preprocess` with this server's preprocessing. It has no queue: the images of all requests
 * share the threads and the memory of the preprocessor.
 *
 * @param maxPixels - Maximum number of pixels of one image.
 */
export function preprocessRunner(maxPixels: number, events: RunnerEvents): ModelRunner {
  const preprocessor = createPreprocessor({ maxPixels, mode: "exact" });
  const [output] = openclipPreprocess.outputs;
  let downstreamItems = 0;

  async function infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const images = (inputs[0] as BytesTensor).data;
    const startedAt = performance.now();
    events.started(images.length);
    downstreamItems += images.length;
    try {
      const pixels = await preprocessAll(preprocessor, images, options);
      const inferUs = (performance.now() - startedAt) * 1000;
      const outputs = [{ ...pixelTensor(pixels), name: output.name }];
      for (const image of pixels) preprocessor.recycle(image);
      const computeOutputUs = (performance.now() - startedAt) * 1000 - inferUs;
      const timing = { queueUs: 0, computeInputUs: 0, computeInferUs: inferUs, computeOutputUs };
      const batchSize = images.length;
      events.executed({ batchSize, requests: [{ items: batchSize, timing }], inferUs });
      return { outputs, timing, batchSize };
    } finally {
      downstreamItems -= images.length;
    }
  }

  const calls = drainable(infer);
  return {
    inputNames: openclipPreprocess.inputs.map(({ name }) => name),
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
    const work = images.map((image) => preprocessor.run(image, { signal: ended.signal }));
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
