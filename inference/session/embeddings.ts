import type { Modality } from "../../contract/model-spec.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { InferenceError } from "../threads/inference-error.ts";

/** A vector that cannot be scaled to unit L2 norm: all zeros, or with values that are not finite. */
export class InvalidEmbeddingError extends InferenceError {
  constructor(
    readonly modality: Modality,
    /** Index of the image or text in its request. */
    readonly index: number,
    norm: number,
  ) {
    super(
      "failed",
      `${modality} ${index} must have an embedding of finite, non-zero norm, got ${norm}`,
    );
  }
}

/** Expected rows of an output. */
export interface OutputRows {
  readonly count: number;
  /** Width of the model's embeddings. */
  readonly width: number;
  /** @default 0 */
  readonly first?: number;
  /** @default "image" */
  readonly modality?: Modality;
}

/**
 * Returns the embeddings in a model's output, each scaled to unit L2 norm.
 *
 * @param output - FP32 `[count, width]`, row-major.
 * @param first - Index of the first row's image or text in its request, for errors.
 * @throws {InferenceError} `failed` if the output has another type or size
 * @throws {InvalidEmbeddingError}
 */
export function embeddingsOf(
  output: Tensor | undefined,
  { count, width, first = 0, modality }: OutputRows,
): readonly Float32Array[] {
  return rowsOf(output, { count, width }).map((row, index) =>
    unitVector(row, first + index, modality),
  );
}

/** Returns why an output is not FP32 `[count, width]`. */
function shapeProblem(
  output: Tensor | undefined,
  { count, width }: OutputRows,
): string | undefined {
  const { dataType, shape = [], data } = output ?? {};
  const [rows, columns] = shape;
  const isValid =
    dataType === "FP32" &&
    shape.length === 2 &&
    rows === count &&
    columns === width &&
    data?.length === count * width;
  if (isValid) return undefined;
  const got = output === undefined ? "none" : `${dataType} [${shape.join(", ")}]`;
  return `the output must be FP32 [${count}, ${width}], got ${got}`;
}

/** Returns why an output does not have an embedding of finite, non-zero norm in each row. */
export function embeddingsProblem(
  output: Tensor | undefined,
  rows: OutputRows,
): string | undefined {
  const problem = shapeProblem(output, rows);
  if (problem !== undefined || output?.dataType !== "FP32") return problem;
  const { width, modality = "image" } = rows;
  for (let at = 0; at < rows.count; at++) {
    const norm = normOf(output.data, at * width, (at + 1) * width);
    if (!isValidNorm(norm)) return new InvalidEmbeddingError(modality, at, norm).message;
  }
  return undefined;
}

/**
 * Copies the rows of a model's output, unscaled.
 *
 * @throws {InferenceError} `failed` if the output is not FP32 `[count, width]`
 */
export function rowsOf(output: Tensor | undefined, rows: OutputRows): readonly Float32Array[] {
  const problem = shapeProblem(output, rows);
  if (problem !== undefined || output?.dataType !== "FP32") {
    throw new InferenceError("failed", problem ?? "");
  }
  const { data } = output;
  const { count, width } = rows;
  return Array.from({ length: count }, (_, index) =>
    data.slice(index * width, (index + 1) * width),
  );
}

function normOf(values: Float32Array, start: number, end: number): number {
  let squares = 0;
  for (let at = start; at < end; at++) squares += values[at]! * values[at]!;
  return Math.sqrt(squares);
}

function isValidNorm(norm: number): boolean {
  return norm > 0 && norm < Number.POSITIVE_INFINITY;
}

/**
 * Scales a vector to unit L2 norm in place, and returns it.
 *
 * @param index - Index of its image or text in the request, for the error.
 * @throws {InvalidEmbeddingError} if its norm is zero or not finite
 */
export function unitVector(
  vector: Float32Array,
  index: number,
  modality: Modality = "image",
): Float32Array {
  const norm = normOf(vector, 0, vector.length);
  if (!isValidNorm(norm)) throw new InvalidEmbeddingError(modality, index, norm);
  for (let at = 0; at < vector.length; at++) vector[at]! /= norm;
  return vector;
}
