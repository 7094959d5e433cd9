import {
  imagePixels,
  imageTowerOf,
  normalisedImage,
  textTowerOf,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { Tensor, TensorSpec } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { openSession } from "../../inference/session/onnx-session.ts";
import { type TokenRow, tokenTensor } from "../../inference/session/token-tensor.ts";
import { fits, withFileNames } from "../../inference/session/tower-fit.ts";
import type { ModelSession } from "../../inference/session/types.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";

/** Inputs of a tower: `[height, width, 3]` 8-bit RGB per image, or `[contextLength]` token ids per text. */
export interface TowerInputs {
  readonly image: Uint8Array;
  readonly text: TokenRow;
}

/** Open tower with any tensor names. */
export interface RunnableModel<M extends Modality = "image"> {
  /**
   * Embeds images or texts in batches of `batchSize`; the last batch may be smaller.
   *
   * @throws {InferenceError}
   */
  embed(inputs: readonly TowerInputs[M][], batchSize: number): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

/** Accepted input of a tower. */
interface InputFormat<Input> extends Pick<TensorSpec, "dataType" | "dims"> {
  readonly tensorOf: (batch: readonly Input[]) => Tensor;
}

/** Returns the input formats of a tower: for images, normalised values and pixels in this order; for texts, token ids. */
export const formatsOf: {
  readonly [M in Modality]: (spec: ModelSpec) => readonly InputFormat<TowerInputs[M]>[];
} = {
  image(spec) {
    const tower = imageTowerOf(spec);
    return [
      { ...normalisedImage(tower), tensorOf: (batch) => imageTensor(batch, tower) },
      { ...imagePixels(tower), tensorOf: (batch) => pixelTensor(batch, tower) },
    ];
  },
  text(spec) {
    const tower = textTowerOf(spec);
    return [{ ...tokenIds(tower), tensorOf: (batch) => tokenTensor(tower, batch) }];
  },
};

/**
 * Opens a tower whose input is the spec's, normalised images, pixels or token ids, with a dynamic batch or batch size 1, whatever
 * the names of its tensors are. Returns the values of the output that the spec names, otherwise those of the first.
 *
 * @throws {InferenceError} `model` if the file cannot be loaded or has another input
 */
export async function openTower<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  path: string,
): Promise<RunnableModel<M>> {
  const session = await openSession({
    modelPath: path,
    batch: "any",
    selectOutputs(file) {
      const { output } = withFileNames(spec, modality, file).towers[modality]!;
      const found = file.outputs.find(({ name }) => name === output) ?? file.outputs[0];
      return found === undefined ? [] : [found.name];
    },
  });
  try {
    return runnable(spec, modality, path, session);
  } catch (error) {
    await session.close();
    throw error;
  }
}

/**
 * Embeds with a session of a tower, which it closes.
 *
 * @throws {InferenceError} `model` if the session has another input than the tower
 */
export function runnable<M extends Modality>(
  spec: ModelSpec,
  modality: M,
  path: string,
  session: ModelSession,
): RunnableModel<M> {
  const formats = formatsOf[modality](spec);
  const [input] = session.inputs;
  const [output] = session.outputs;
  const format = formats.find((accepted) => input !== undefined && fits(accepted, input));
  if (session.inputs.length !== 1 || input === undefined || format === undefined) {
    const accepted = formats.map(({ dataType, dims }) => `${dataType} [${dims.join(", ")}]`);
    const got = session.inputs.map(({ name, dataType, dims }) => `${name} ${dataType} [${dims}]`);
    throw new InferenceError(
      "model",
      `${path}: must take one ${modality} of ${spec.name}, ${accepted.join(" or ")}, got ${got.join(", ") || "none"}`,
    );
  }
  return {
    embed: inBatches(path, modality, async (batch) => {
      const tensor = { ...format.tensorOf(batch), name: input.name };
      const { outputs } = await session.run([tensor]);
      return outputs.find(({ name }) => name === output?.name);
    }),
    close: () => session.close(),
  };
}

/**
 * Embeds inputs a batch at a time.
 *
 * @param run - Returns the embeddings of a batch.
 */
export function inBatches<M extends Modality>(
  subject: string,
  modality: M,
  run: (batch: readonly TowerInputs[M][]) => Promise<Tensor | undefined>,
): RunnableModel<M>["embed"] {
  return async (inputs, batchSize) => {
    const vectors: Float32Array[] = [];
    for (let first = 0; first < inputs.length; first += batchSize) {
      const batch = inputs.slice(first, first + batchSize);
      const found = await run(batch);
      if (found?.dataType !== "FP32" || found.shape[0] !== batch.length) {
        const actual = found === undefined ? "none" : `${found.dataType} [${found.shape}]`;
        throw new InferenceError(
          "model",
          `${subject}: must return FP32 values for each of ${batch.length} ${modality}s, got ${actual}`,
        );
      }
      const width = found.data.length / batch.length;
      for (let row = 0; row < batch.length; row++) {
        vectors.push(found.data.slice(row * width, (row + 1) * width));
      }
    }
    return vectors;
  };
}

/** Small, to limit memory. */
const defaultBatchSize = 4;

/** Opens an image tower, embeds images as {@link RunnableModel.embed} does, and closes it. */
export async function embedWith(
  spec: ModelSpec,
  path: string,
  images: readonly Uint8Array[],
  batchSize = defaultBatchSize,
): Promise<readonly Float32Array[]> {
  const model = await openTower(spec, "image", path);
  try {
    return await model.embed(images, batchSize);
  } finally {
    await model.close();
  }
}
