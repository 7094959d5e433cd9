import { openclipVitB32, openclipVitB32U8 } from "../contract/model-signature.ts";
import { elementCount } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../inference/preprocess/image-tensor.ts";
import { openSession } from "../inference/session/onnx-session.ts";
import { InferenceError } from "../inference/session/types.ts";

/** Open model with any tensor names. */
export interface RunnableModel {
  /**
   * Embeds images in batches of `batchSize`; the last batch may be smaller.
   *
   * @param images - `[224, 224, 3]` 8-bit RGB each
   * @throws {InferenceError}
   */
  embed(images: readonly Uint8Array[], batchSize: number): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

const payloadFormats = [
  { spec: openclipVitB32.inputs[0], tensorOf: imageTensor },
  { spec: openclipVitB32U8.inputs[0], tensorOf: pixelTensor },
] as const;

/**
 * Opens an image model with normalised planes or pixels as input, and a dynamic batch or batch size 1.
 *
 * @throws {InferenceError} `model` if the file cannot be loaded or is not an image model
 */
export async function openModel(path: string): Promise<RunnableModel> {
  const session = await openSession({ modelPath: path, batch: "any" });
  const [input] = session.inputs;
  const [output] = session.outputs;
  const format = payloadFormats.find(
    ({ spec }) => input?.dataType === spec.dataType && input.dims.join() === spec.dims.join(),
  );
  if (session.inputs.length !== 1 || input === undefined || format === undefined) {
    const got = session.inputs.map(({ name, dataType, dims }) => `${name} ${dataType} [${dims}]`);
    await session.close();
    throw new InferenceError(
      "model",
      `${path}: must take one image, FP32 [3, 224, 224] or UINT8 [224, 224, 3], got ${got.join(", ") || "none"}`,
    );
  }
  return {
    async embed(images, batchSize) {
      const vectors: Float32Array[] = [];
      for (let first = 0; first < images.length; first += batchSize) {
        const batch = images.slice(first, first + batchSize);
        const { outputs } = await session.run([{ ...format.tensorOf(batch), name: input.name }]);
        const found = outputs.find(({ name }) => name === output?.name);
        if (found?.dataType !== "FP32" || found.shape[0] !== batch.length) {
          const actual = found === undefined ? "none" : `${found.dataType} [${found.shape}]`;
          throw new InferenceError(
            "model",
            `${path}: must return FP32 values for each of ${batch.length} images, got ${actual}`,
          );
        }
        const width = elementCount(found.shape) / batch.length;
        for (let i = 0; i < batch.length; i++) {
          vectors.push(found.data.slice(i * width, (i + 1) * width));
        }
      }
      return vectors;
    },
    close: () => session.close(),
  };
}

/** Small, to limit memory. */
const defaultBatchSize = 4;

/** Opens a model, embeds images as {@link RunnableModel.embed} does, and closes it. */
export async function embedWith(
  path: string,
  images: readonly Uint8Array[],
  batchSize = defaultBatchSize,
): Promise<readonly Float32Array[]> {
  const model = await openModel(path);
  try {
    return await model.embed(images, batchSize);
  } finally {
    await model.close();
  }
}
