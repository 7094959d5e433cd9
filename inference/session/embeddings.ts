import { embeddingDims } from "../../contract/model-signature.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { InferenceError } from "./types.ts";

/** A vector that cannot be scaled to unit L2 norm: all zeros, or with values that are not finite. */
export class InvalidEmbeddingError extends InferenceError {
  constructor(
    /** Index of the image in its request. */
    readonly image: number,
    norm: number,
  ) {
    super("failed", `image ${image} must have an embedding of finite, non-zero norm, got ${norm}`);
  }
}

/**
 * Returns the embeddings in a model's output, each scaled to unit L2 norm.
 *
 * @param output - FP32 `[count, 512]`, row-major.
 * @param firstImage - Index of the first row's image in its request, for errors.
 * @throws {InferenceError} `failed` if the output has another type or size
 * @throws {InvalidEmbeddingError}
 */
export function embeddingsOf(
  output: Tensor | undefined,
  count: number,
  firstImage = 0,
): readonly Float32Array[] {
  return rowsOf(output, count).map((row, index) => unitVector(row, firstImage + index));
}

/**
 * Copies the rows of a model's output, unscaled.
 *
 * @throws {InferenceError} `failed` if the output is not FP32 `[count, 512]`
 */
export function rowsOf(output: Tensor | undefined, count: number): readonly Float32Array[] {
  if (output?.dataType !== "FP32" || output.data.length !== count * embeddingDims) {
    const got = output === undefined ? "none" : `${output.dataType} [${output.shape.join(", ")}]`;
    throw new InferenceError(
      "failed",
      `the output must be FP32 [${count}, ${embeddingDims}], got ${got}`,
    );
  }
  const { data } = output;
  return Array.from({ length: count }, (_, index) =>
    data.slice(index * embeddingDims, (index + 1) * embeddingDims),
  );
}

/**
 * Scales a vector to unit L2 norm in place, and returns it.
 *
 * @param image - Index of its image in the request, for the error.
 * @throws {InvalidEmbeddingError} if its norm is zero or not finite
 */
export function unitVector(vector: Float32Array, image: number): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  const norm = Math.sqrt(squares);
  if (!(norm > 0 && norm < Number.POSITIVE_INFINITY)) throw new InvalidEmbeddingError(image, norm);
  for (let index = 0; index < vector.length; index++) vector[index]! /= norm;
  return vector;
}
