import {
  type BytesTensor,
  elementArrays,
  type NumericTensor,
  type Tensor,
} from "../../contract/tensor.ts";
import { InferenceError } from "../threads/inference-error.ts";

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
  const { name, shape, dataType } = parts[0]!;
  const head = { name, shape: [batchSize, ...shape.slice(1)] };
  if (dataType === "BYTES") {
    const data = (parts as readonly BytesTensor[]).flatMap((part) => [...part.data]);
    return { ...head, dataType, data };
  }
  const length = parts.reduce((total, { data }) => total + data.length, 0);
  const data = new elementArrays[dataType](length);
  let offset = 0;
  for (const part of parts as readonly NumericTensor[]) {
    // all parts have the type of the first
    (data as Uint8Array).set(part.data as Uint8Array, offset);
    offset += part.data.length;
  }
  return { ...head, dataType, data } as Tensor;
}

/** Returns rows `first` to `first + count` of a tensor as a view. */
export function sliceRows(tensor: Tensor, first: number, count: number): Tensor {
  const perRow = tensor.data.length / tensor.shape[0]!;
  const range = [first * perRow, (first + count) * perRow] as const;
  const data =
    tensor.dataType === "BYTES" ? tensor.data.slice(...range) : tensor.data.subarray(...range);
  return { ...tensor, shape: [count, ...tensor.shape.slice(1)], data } as Tensor;
}
