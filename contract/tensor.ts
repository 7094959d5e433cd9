/** Tensors with the type names of the Open Inference Protocol. */

/** Array of each numeric type's elements. */
export const elementArrays = {
  UINT8: Uint8Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  FP32: Float32Array,
} as const;
type NumericType = keyof typeof elementArrays;

/** Data types of the Open Inference Protocol v2 that models in clipstack use. */
export const dataTypes = ["UINT8", "INT32", "INT64", "FP32", "BYTES"] as const;
export type DataType = (typeof dataTypes)[number];

/** Serialised bytes per element; `undefined` for BYTES, whose elements include their length. */
export const bytesPerElement: Readonly<Record<NumericType, number> & { BYTES: undefined }> = {
  UINT8: 1,
  INT32: 4,
  INT64: 8,
  FP32: 4,
  BYTES: undefined,
};

/** Name, type and shape of an input or output, without the batch dimension. */
export interface TensorSpec {
  readonly name: string;
  readonly dataType: DataType;
  /** Dimensions without the batch dimension; -1 is any size. */
  readonly dims: readonly number[];
}

/** Row-major, little-endian tensor; `shape` includes the batch dimension. */
export type Tensor = NumericTensor | BytesTensor;
export type NumericTensor = Fp32Tensor | Uint8Tensor | Int32Tensor | Int64Tensor;

interface TensorHead {
  readonly name: string;
  readonly shape: readonly number[];
}
export interface Fp32Tensor extends TensorHead {
  readonly dataType: "FP32";
  readonly data: Float32Array;
}
/** Tensor of byte strings, for example encoded images. */
export interface BytesTensor extends TensorHead {
  readonly dataType: "BYTES";
  readonly data: readonly Uint8Array[];
}
/** Tensor of 8-bit values, for example pixels. */
export interface Uint8Tensor extends TensorHead {
  readonly dataType: "UINT8";
  readonly data: Uint8Array;
}
/** Tensor of 32-bit integers, for example token ids. */
export interface Int32Tensor extends TensorHead {
  readonly dataType: "INT32";
  readonly data: Int32Array;
}
/** Tensor of 64-bit integers, for example token ids. */
export interface Int64Tensor extends TensorHead {
  readonly dataType: "INT64";
  readonly data: BigInt64Array;
}

/** Returns the number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, dim) => product * dim, 1);
}
