import type { OnnxTensor } from "../onnx/reader.ts";

/** Matrix of weights, used as `x · W` with `W` [from, to]. */
export interface TowerMatrix {
  readonly tensor: OnnxTensor;
  /** Whether the file stores it as [to, from]. */
  readonly transposed: boolean;
}

export interface TowerLinear {
  readonly weight: TowerMatrix;
  /** `[to]`. */
  readonly bias?: OnnxTensor;
}

export interface TowerNorm {
  readonly gain: OnnxTensor;
  readonly bias: OnnxTensor;
  readonly epsilon: number;
}

/** Columns of a projection, because query, key and value may share one matrix. */
export interface ProjectionColumns {
  readonly linear: TowerLinear;
  /** Index of the part, of `of` equal parts of the columns. */
  readonly part: number;
  readonly of: 1 | 3;
}

export interface TowerBlock {
  readonly attentionNorm: TowerNorm;
  readonly query: ProjectionColumns;
  readonly key: ProjectionColumns;
  readonly value: ProjectionColumns;
  readonly output: TowerLinear;
  readonly mlpNorm: TowerNorm;
  readonly hidden: TowerLinear;
  readonly activation: "gelu" | "quick-gelu";
  readonly projection: TowerLinear;
}

/** Weights of a CLIP image tower by purpose, independent of how the graph was exported. */
export interface Tower {
  /** Convolution of non-overlapping square patches: `[width, 3, side, side]`. */
  readonly patches: { readonly weight: OnnxTensor; readonly bias?: OnnxTensor };
  /** `[width]` in any shape; `undefined` if `positions` includes it. */
  readonly classToken?: OnnxTensor;
  /** `[1 + patches, width]`. */
  readonly positions: OnnxTensor;
  readonly firstNorm?: TowerNorm;
  readonly blocks: readonly TowerBlock[];
  readonly lastNorm: TowerNorm;
  readonly projection: TowerLinear;
  /** Whether the embedding is divided by its L2 norm at the end. */
  readonly unitLength: boolean;
  readonly width: number;
  readonly patchSide: number;
  readonly imageSide: number;
  /** Candidates for the number of attention heads, most likely first: the graph may not show it. */
  readonly heads: readonly number[];
}

/** Dimensions of a matrix as used: `[from, to]`. */
export function matrixDims({ tensor, transposed }: TowerMatrix): readonly [number, number] {
  const [rows, columns] = tensor.dims as [number, number];
  return transposed ? [columns, rows] : [rows, columns];
}
