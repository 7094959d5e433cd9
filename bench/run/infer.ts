import type { Transport } from "../../client/triton/transport.ts";
import { embeddingDims, imageSide, openclipVitB32 } from "../../contract/model-signature.ts";
import type { Fp32Tensor, Tensor } from "../../contract/tensor.ts";
import { norm } from "../stats/statistics.ts";

/** The model's input for `batch` preprocessed images. */
export function inputTensor(data: Float32Array, batch: number): Fp32Tensor {
  const [input] = openclipVitB32.inputs;
  return { name: input.name, dataType: "FP32", shape: [batch, 3, imageSide, imageSide], data };
}

/**
 * Ask a Triton for embeddings.
 *
 * @param data - `[batch, 3, 224, 224]` float32, row-major.
 * @returns One raw vector of 512 for each image; a Triton does not normalise.
 */
export async function inferRows(
  transport: Transport,
  model: string,
  data: Float32Array,
  batch: number,
  timeoutMs: number,
): Promise<readonly Float32Array[]> {
  return rowsOf(await transport.infer(model, [inputTensor(data, batch)], { timeoutMs }), batch);
}

/** The vectors in a Triton's answer for `batch` images. Throws a one-line error where they are not there. */
export function rowsOf(outputs: readonly Tensor[], batch: number): readonly Float32Array[] {
  const [expected] = openclipVitB32.outputs;
  const output = outputs.find(({ name }) => name === expected.name);
  if (output === undefined || output.dataType !== "FP32") {
    throw new Error(
      `expected an FP32 output '${expected.name}', got ${outputs.map((o) => o.name).join(", ")}`,
    );
  }
  if (output.shape.join() !== [batch, embeddingDims].join()) {
    throw new Error(`expected [${batch}, ${embeddingDims}], got [${output.shape.join(", ")}]`);
  }
  return Array.from({ length: batch }, (_, row) =>
    output.data.subarray(row * embeddingDims, (row + 1) * embeddingDims),
  );
}

/** The same direction with length 1. */
export function unit(vector: Float32Array): Float32Array {
  const length = norm(vector);
  return vector.map((value) => value / length);
}
