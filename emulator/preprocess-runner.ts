import { setMaxListeners } from "node:events";
import { normalisedImage } from "../contract/model-shapes.ts";
import type { ImageInput, PixelInput } from "../contract/model-spec.ts";
import type { PreprocessSettings } from "../contract/preprocess-parameters.ts";
import type { Tensor, TensorSpec, Uint8Tensor } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../inference/preprocess/image-tensor.ts";
import {
  createPreprocessor,
  ImageError,
  type Preprocessor,
} from "../inference/preprocess/preprocess.ts";
import type { InferResult } from "../inference/session/types.ts";
import { InferenceError } from "../inference/threads/inference-error.ts";
import { drainable, type ModelRunner, type RunnerEvents, type RunOptions } from "./model-runner.ts";
import { invalidArgument } from "./oip-error.ts";

/** Model that converts image files to the input of another model. */
export interface PreprocessingModel extends PreprocessSettings {
  readonly inputs: readonly [TensorSpec];
  readonly outputs: readonly [TensorSpec];
  /** @param pixels - `[height, width, 3]` 8-bit RGB of each image */
  result(pixels: readonly Uint8Array[]): Tensor;
}

/** Python model of the repository: image files to 8-bit pixels. */
export function pythonModel(settings: PreprocessSettings): PreprocessingModel {
  const { size } = settings.input;
  const output = { name: "pixels", dataType: "UINT8", dims: [size.height, size.width, 3] } as const;
  return {
    ...settings,
    inputs: [{ name: "encoded", dataType: "BYTES", dims: [1] }],
    outputs: [output],
    result: (pixels) => pixelTensor(pixels, { input: { size, tensor: output.name } }),
  };
}

/** DALI pipeline of the repository: image files to normalised images. */
export function daliModel(settings: PreprocessSettings<ImageInput>): PreprocessingModel {
  const tower = { input: { ...settings.input, tensor: "normalised" } };
  return {
    ...settings,
    inputs: [{ name: "encoded", dataType: "UINT8", dims: [-1] }],
    outputs: [normalisedImage(tower)],
    result: (pixels) => imageTensor(pixels, tower),
  };
}

/** Files of a batch: BYTES, or rows of 8-bit values with zeros at the end. */
function filesOf({ dataType, data, shape }: Tensor): readonly Uint8Array[] {
  if (dataType === "BYTES") return data;
  const [count = 0, length = 0] = shape;
  const rows = (data as Uint8Tensor["data"]).subarray.bind(data as Uint8Tensor["data"]);
  return Array.from({ length: count }, (_, row) => rows(row * length, (row + 1) * length));
}

/**
 * Emulates a preprocessing model with this server's preprocessing. It has no queue: the images of all requests share the threads and
 * the memory of the preprocessor.
 */
export function preprocessRunner(
  { input, maxImagePixels: maxPixels, inputs, result }: PreprocessingModel,
  events: RunnerEvents,
): ModelRunner {
  const preprocessor = createPreprocessor({ maxPixels, mode: "exact" });
  let downstreamItems = 0;

  async function infer([encoded]: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const images = filesOf(encoded!);
    const startedAt = performance.now();
    events.onStart(images.length);
    downstreamItems += images.length;
    try {
      const pixels = await preprocessAll(preprocessor, input, images, options);
      const inferUs = (performance.now() - startedAt) * 1000;
      const results = [result(pixels)];
      for (const image of pixels) preprocessor.recycle(image);
      const computeOutputUs = (performance.now() - startedAt) * 1000 - inferUs;
      const timing = { queueUs: 0, computeInputUs: 0, computeInferUs: inferUs, computeOutputUs };
      const batchSize = images.length;
      events.onExecution({ batchSize, requests: [{ items: batchSize, timing }], inferUs });
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
