/** Tensors as the Open Inference Protocol names them. Plain data: no runtime behind it. */

/** Data types of the Open Inference Protocol v2 that the models of clipstack have. */
export const dataTypes = ["UINT8", "FP32", "BYTES"] as const;
export type DataType = (typeof dataTypes)[number];

/** Bytes an element takes on the wire; `undefined` for BYTES, whose elements carry their own length. */
export const bytesPerElement: Readonly<Record<DataType, number | undefined>> = {
  UINT8: 1,
  FP32: 4,
  BYTES: undefined,
};

/** Name, type and shape of an input or output, without the batch dimension. */
export interface TensorSpec {
  readonly name: string;
  readonly dataType: DataType;
  /** Without the batch dimension; -1 is any size. */
  readonly dims: readonly number[];
}

/** One tensor. Row-major, little endian; `shape` includes the batch dimension. */
export type Tensor = Fp32Tensor | BytesTensor | Uint8Tensor;

interface TensorHead {
  readonly name: string;
  readonly shape: readonly number[];
}
export interface Fp32Tensor extends TensorHead {
  readonly dataType: "FP32";
  readonly data: Float32Array;
}
/** Each element is a string of bytes, for example one encoded image. */
export interface BytesTensor extends TensorHead {
  readonly dataType: "BYTES";
  readonly data: readonly Uint8Array[];
}
/** For example the pixels of images. */
export interface Uint8Tensor extends TensorHead {
  readonly dataType: "UINT8";
  readonly data: Uint8Array;
}

/** Number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, dim) => product * dim, 1);
}
