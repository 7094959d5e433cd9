import type { Transport } from "../../client/triton/transport.ts";
import {
  embeddingTensor,
  imageTowerOf,
  normalisedImage,
  towerOf,
} from "../../contract/model-shapes.ts";
import type { ImageTower, ModelSpec, ModelTower } from "../../contract/model-spec.ts";
import type { Fp32Tensor, Tensor } from "../../contract/tensor.ts";
import { norm } from "../stats/statistics.ts";

/** Concatenates the model inputs of images to the input of a batch. */
export function stack(images: readonly { readonly tensor: Float32Array }[]): Float32Array {
  const width = images[0]?.tensor.length ?? 0;
  const data = new Float32Array(width * images.length);
  images.forEach(({ tensor }, i) => {
    data.set(tensor, i * width);
  });
  return data;
}

/** FP32 input tensor of the image tower for `batch` preprocessed images. */
export function inputTensor(tower: ImageTower, data: Float32Array, batch: number): Fp32Tensor {
  const { name, dims } = normalisedImage(tower);
  return { name, dataType: "FP32", shape: [batch, ...dims], data };
}

/**
 * Requests embeddings from a Triton server.
 *
 * @param model - Name of the model in the request.
 * @param data - Normalised input of `batch` images, row-major.
 * @returns One vector per image, not normalised.
 */
export async function inferRows(
  transport: Transport,
  model: string,
  spec: ModelSpec,
  data: Float32Array,
  batch: number,
  timeoutMs: number,
): Promise<readonly Float32Array[]> {
  const input = inputTensor(imageTowerOf(spec), data, batch);
  return inferTensor(transport, { model, spec, modality: "image" }, input, timeoutMs);
}

/**
 * Requests embeddings of an input tensor from a Triton server.
 *
 * @returns One vector per image or text, not normalised.
 */
export async function inferTensor(
  transport: Transport,
  { model, ...tower }: ModelTower & { readonly model: string },
  input: Tensor,
  timeoutMs: number,
): Promise<readonly Float32Array[]> {
  const outputs = await transport.infer(model, [input], { timeoutMs });
  return rowsOf(tower, outputs, input.shape[0] ?? 0);
}

/** Vectors in a Triton server's response for `batch` images or texts. Throws a one-line error if they are missing. */
export function rowsOf(
  tower: ModelTower,
  outputs: readonly Tensor[],
  batch: number,
): readonly Float32Array[] {
  const { width } = tower.spec.embedding;
  const expected = embeddingTensor(tower.spec, towerOf(tower));
  const output = outputs.find(({ name }) => name === expected.name);
  if (output === undefined || output.dataType !== "FP32") {
    throw new Error(
      `expected an FP32 output '${expected.name}', got ${outputs.map((o) => o.name).join(", ")}`,
    );
  }
  if (output.shape.join() !== [batch, width].join()) {
    throw new Error(`expected [${batch}, ${width}], got [${output.shape.join(", ")}]`);
  }
  return Array.from({ length: batch }, (_, row) =>
    output.data.subarray(row * width, (row + 1) * width),
  );
}

/** Vector of length 1 with the same direction. */
export function unit(vector: Float32Array): Float32Array {
  const length = norm(vector);
  return vector.map((value) => value / length);
}
