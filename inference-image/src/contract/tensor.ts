/** Tensors as the Open Inference Protocol names them. Plain data: no runtime behind it. */

/** Data types of the Open Inference Protocol v2 that clipstack carries. */
export const dataTypes = [
  "BOOL",
  "UINT8",
  "UINT16",
  "UINT32",
  "UINT64",
  "INT8",
  "INT16",
  "INT32",
  "INT64",
  "FP16",
  "FP32",
  "FP64",
  "BYTES",
] as const;
export type DataType = (typeof dataTypes)[number];

/** Bytes an element takes on the wire; `undefined` for BYTES, whose elements carry their own length. */
export const bytesPerElement: Readonly<Record<DataType, number | undefined>> = {
  BOOL: 1,
  UINT8: 1,
  UINT16: 2,
  UINT32: 4,
  UINT64: 8,
  INT8: 1,
  INT16: 2,
  INT32: 4,
  INT64: 8,
  FP16: 2,
  FP32: 4,
  FP64: 8,
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
export type Tensor = Fp32Tensor | BytesTensor | RawTensor;

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
/** Any other type, as its bytes on the wire. */
export interface RawTensor extends TensorHead {
  readonly dataType: Exclude<DataType, "FP32" | "BYTES">;
  readonly data: Uint8Array;
}

/** Number of elements of a shape; 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  return shape.reduce((product, dim) => product * dim, 1);
}
