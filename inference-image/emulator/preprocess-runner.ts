import { setMaxListeners } from "node:events";
import { openclipPreprocess } from "../../contract/model-signature.ts";
import type { BytesTensor, Tensor } from "../../contract/tensor.ts";
import { pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { createPreprocessor, ImageError } from "../../inference/preprocess/preprocess.ts";
import { InferenceError, type InferResult } from "../../inference/session/types.ts";
import { CallCounter } from "../http/drain.ts";
import type { ModelRunner, RunnerEvents, RunOptions } from "./model-runner.ts";
import { OipError } from "./oip-error.ts";

export interface PreprocessRunnerOptions {
  /** Maximum number of pixels of one image. */
  readonly maxPixels: number;
}

/**
 * Emulates the Python model `openclip_preprocess` with this server's preprocessing. It has no queue: the images of all requests
 * share the threads and the memory of the preprocessor.
 */
export function preprocessRunner(
  { maxPixels }: PreprocessRunnerOptions,
  events: RunnerEvents,
): ModelRunner {
  const preprocessor = createPreprocessor({ maxPixels, mode: "exact" });
  const [output] = openclipPreprocess.outputs;
  const calls = new CallCounter();
  let downstreamItems = 0;
  let closing = false;

  async function run(images: readonly Uint8Array[], { signal, queueTimeoutMs }: RunOptions) {
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
      for (const [index, result] of results.entries()) {
        if (result.status === "fulfilled") continue;
        const { reason } = result;
        if (reason instanceof ImageError) {
          throw new OipError("invalid-argument", `image ${index} ${reason.message}`, {
            cause: reason,
          });
        }
        if (ended.signal.aborted)
          throw new InferenceError("expired", "cancelled or timed out in the queue");
        throw reason;
      }
      return results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }

  async function infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const images = (inputs[0] as BytesTensor).data;
    const startedAt = performance.now();
    events.started(images.length);
    downstreamItems += images.length;
    try {
      const pixels = await run(images, options);
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

  return {
    inputNames: openclipPreprocess.inputs.map(({ name }) => name),
    infer: async (inputs, options) => {
      if (closing) throw new InferenceError("draining", "the model is draining");
      return await calls.during(() => infer(inputs, options));
    },
    get downstreamItems() {
      return downstreamItems;
    },
    async close() {
      closing = true;
      await calls.answered();
      await preprocessor.close();
    },
  };
}
