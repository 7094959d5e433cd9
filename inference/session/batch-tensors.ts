import { elementCount, type Tensor } from "../../contract/tensor.ts";
import { InferenceError } from "./types.ts";

/** @throws {InferenceError} `failed` unless every output has `batchSize` rows. */
export function checkOutputs(outputs: readonly Tensor[], batchSize: number): void {
  for (const { name, shape } of outputs) {
    if (shape[0] !== batchSize) {
      throw new InferenceError(
        "failed",
        `output '${name}' must have ${batchSize} rows, got [${shape.join(", ")}]`,
      );
    }
  }
}

/** Concatenates rows into new memory, which can be transferred. */
export function concatenate(parts: readonly Tensor[], batchSize: number): Tensor {
  const { name, shape } = parts[0]!;
  const head = { name, shape: [batchSize, ...shape.slice(1)] };
  const first = parts[0]!;
  if (first.dataType === "FP32") {
    const data = new Float32Array(elementCount(head.shape));
    let offset = 0;
    for (const part of parts as readonly (typeof first)[]) {
      data.set(part.data, offset);
      offset += part.data.length;
    }
    return { ...head, dataType: "FP32", data };
  }
  if (first.dataType === "BYTES") {
    const data = (parts as readonly (typeof first)[]).flatMap((part) => [...part.data]);
    return { ...head, dataType: "BYTES", data };
  }
  const pieces = (parts as readonly (typeof first)[]).map((part) => part.data);
  const data = new Uint8Array(pieces.reduce((total, piece) => total + piece.byteLength, 0));
  let offset = 0;
  for (const piece of pieces) {
    data.set(piece, offset);
    offset += piece.byteLength;
  }
  return { ...head, dataType: first.dataType, data };
}

/** Returns rows `first` to `first + count` of a tensor as a view. */
export function sliceRows(tensor: Tensor, first: number, count: number): Tensor {
  const rows = tensor.shape[0]!;
  const head = { name: tensor.name, shape: [count, ...tensor.shape.slice(1)] };
  const cut = (length: number) => [(first * length) / rows, ((first + count) * length) / rows];
  if (tensor.dataType === "FP32") {
    return {
      ...head,
      dataType: "FP32",
      data: tensor.data.subarray(...cut(tensor.data.length)),
    };
  }
  if (tensor.dataType === "BYTES") {
    return { ...head, dataType: "BYTES", data: tensor.data.slice(...cut(tensor.data.length)) };
  }
  return {
    ...head,
    dataType: tensor.dataType,
    data: tensor.data.subarray(...cut(tensor.data.length)),
  };
}
