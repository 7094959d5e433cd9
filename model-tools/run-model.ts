import { openclipVitB32, openclipVitB32U8 } from "../contract/model-signature.ts";
import { elementCount } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../inference/preprocess/image-tensor.ts";
import { openSession } from "../inference/session/onnx-session.ts";
import { InferenceError } from "../inference/session/types.ts";

/** A model that is open, whatever its tensors are called. */
export interface RunnableModel {
  /**
   * The embeddings of images, in runs of `batchSize` of them; the last run may be shorter.
   *
   * @param images - `[224, 224, 3]` 8-bit RGB each
   * @throws {InferenceError}
   */
  embed(images: readonly Uint8Array[], batchSize: number): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

/** Payload formats of a model. */
const payloadFormats = [
  { spec: openclipVitB32.inputs[0], tensorOf: imageTensor },
  { spec: openclipVitB32U8.inputs[0], tensorOf: pixelTensor },
] as const;

/**
 * Open an image model that takes normalised planes or pixels, with a batch of any size or of one.
 *
 * @throws {InferenceError} `model`, when it cannot be loaded, or is not one.
 */
export async function openModel(path: string): Promise<RunnableModel> {
  const session = await openSession({ modelPath: path, batch: "any" });
  const [input] = session.inputs;
  const [output] = session.outputs;
  const way = payloadFormats.find(
    ({ spec }) => input?.dataType === spec.dataType && input.dims.join() === spec.dims.join(),
  );
  if (session.inputs.length !== 1 || input === undefined || way === undefined) {
    const got = session.inputs.map(({ name, dataType, dims }) => `${name} ${dataType} [${dims}]`);
    await session.close();
    throw new InferenceError(
      "model",
      `${path}: must take one image, FP32 [3, 224, 224] or UINT8 [224, 224, 3], takes ${got.join(", ") || "nothing"}`,
    );
  }
  return {
    async embed(images, batchSize) {
      const vectors: Float32Array[] = [];
      for (let first = 0; first < images.length; first += batchSize) {
        const batch = images.slice(first, first + batchSize);
        const { outputs } = await session.run([{ ...way.tensorOf(batch), name: input.name }]);
        const found = outputs.find(({ name }) => name === output?.name);
        if (found?.dataType !== "FP32" || found.shape[0] !== batch.length) {
          const shown = found === undefined ? "nothing" : `${found.dataType} [${found.shape}]`;
          throw new InferenceError(
            "model",
            `${path}: must give FP32 values for each of ${batch.length} images, gives ${shown}`,
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

/** Images of one run: few, so that it takes little memory. */
const defaultBatchSize = 4;

/** Embeddings of images from a model that is opened for them, as {@link RunnableModel.embed}. */
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
