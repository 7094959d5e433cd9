import type { Transport } from "../../client/triton/transport.ts";
import { embeddingDims, imageSide, openclipVitB32 } from "../../contract/model-signature.ts";
import type { Fp32Tensor, Tensor } from "../../contract/tensor.ts";
import { norm } from "../stats/statistics.ts";

/** Concatenates preprocessed images, each `[3, 224, 224]`, to `[B, 3, 224, 224]`. */
export function stack(images: readonly { readonly tensor: Float32Array }[]): Float32Array {
  const width = images[0]?.tensor.length ?? 0;
  const data = new Float32Array(width * images.length);
  images.forEach(({ tensor }, i) => {
    data.set(tensor, i * width);
  });
  return data;
}

/** Input tensor of the model for `batch` preprocessed images. */
export function inputTensor(data: Float32Array, batch: number): Fp32Tensor {
  const [input] = openclipVitB32.inputs;
  return { name: input.name, dataType: "FP32", shape: [batch, 3, imageSide, imageSide], data };
}

/**
 * Requests embeddings from a Triton.
 *
 * @param data - `[batch, 3, 224, 224]` float32, row-major.
 * @returns One vector of 512 values per image, not normalised.
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

/** Vectors in a Triton's response for `batch` images. Throws a one-line error if they are missing. */
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

/** Vector of length 1 with the same direction. */
export function unit(vector: Float32Array): Float32Array {
  const length = norm(vector);
  return vector.map((value) => value / length);
}
