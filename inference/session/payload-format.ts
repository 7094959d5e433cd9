import {
  embeddingTensor,
  encodedBytes,
  encodedImage,
  imagePixels,
  normalisedImage,
  tokenIds,
} from "../../contract/model-shapes.ts";
import type { ImageTower, ModelSpec } from "../../contract/model-spec.ts";
import type { Tensor, TensorSpec, Uint8Tensor } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../preprocess/image-tensor.ts";
import { InferenceError } from "../threads/inference-error.ts";

/** Encoding in which a model receives images. */
export interface PayloadFormat {
  /** Input of the model, without the batch dimension. */
  readonly tensorSpec: TensorSpec;
  /** Input of {@link tensor}: preprocessed pixels, image files, or JPEG files that DALI decodes. */
  readonly input: "pixels" | "encoded" | "jpeg";
  tensor(images: readonly Uint8Array[]): Tensor;
}

/** Inputs and outputs of a model, with the batch dimension. */
export interface ModelTensors {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
}

/**
 * Checks that a Triton model has the text tower of `spec`.
 *
 * @returns Its input, without the batch dimension.
 * @throws as {@link payloadFormatOf}
 */
export function tokenInputOf(
  spec: ModelSpec,
  model: string,
  { inputs, outputs }: ModelTensors,
  createError: (problem: string) => Error,
): TensorSpec {
  const { text } = spec.towers;
  if (text === undefined) throw new InferenceError("model", `${spec.name} has no text tower`);
  const input = tokenIds(text);
  const [expected, found] = [
    { inputs: [input].map(batched), outputs: [embeddingTensor(spec, text)].map(batched) },
    { inputs, outputs },
  ].map((tensors) => `${tensorText(tensors.inputs)} and give ${tensorText(tensors.outputs)}`);
  if (found === expected) return input;
  throw createError(`${model} must take ${expected}, got ${found}`);
}

function payloadFormats(tower: ImageTower): readonly PayloadFormat[] {
  const encoded = encodedImage(tower);
  return [
    {
      tensorSpec: imagePixels(tower),
      input: "pixels",
      tensor: (images) => pixelTensor(images, tower),
    },
    {
      tensorSpec: normalisedImage(tower),
      input: "pixels",
      tensor: (images) => imageTensor(images, tower),
    },
    {
      tensorSpec: encoded,
      input: "encoded",
      tensor: (images) => ({
        name: encoded.name,
        dataType: "BYTES",
        shape: [images.length, ...encoded.dims],
        data: images,
      }),
    },
    {
      tensorSpec: encodedBytes(tower),
      input: "jpeg",
      tensor: (images) => paddedTensor(images, tower),
    },
  ];
}

/**
 * Files of a batch as rows of one tensor for DALI, with zeros up to the longest; decoders ignore bytes after the end of an image.
 */
export function paddedTensor(images: readonly Uint8Array[], tower: ImageTower): Uint8Tensor {
  const { name } = encodedBytes(tower);
  const [first] = images;
  const length = Math.max(0, ...images.map((image) => image.length));
  const shape = [images.length, length];
  if (images.length === 1 && first !== undefined)
    return { name, dataType: "UINT8", shape, data: first };
  const data = new Uint8Array(images.length * length);
  for (const [index, image] of images.entries()) data.set(image, index * length);
  return { name, dataType: "UINT8", shape, data };
}

/**
 * Returns the payload format of a Triton model with the image tower of `spec`.
 *
 * @param model - Name in the model repository, for messages.
 * @param createError - Creates the error thrown for an unsupported model from its message.
 * @throws {InferenceError} `model` if the spec has no image tower
 */
export function payloadFormatOf(
  spec: ModelSpec,
  model: string,
  { inputs, outputs }: ModelTensors,
  createError: (problem: string) => Error,
): PayloadFormat {
  const { image } = spec.towers;
  if (image === undefined) throw new InferenceError("model", `${spec.name} has no image tower`);
  const formats = payloadFormats(image);
  const output = tensorText([embeddingTensor(spec, image)].map(batched));
  const [actualInput, actualOutput] = [tensorText(inputs), tensorText(outputs)];
  const format = formats.find(
    ({ tensorSpec }) => inputText(tensorSpec) === actualInput && output === actualOutput,
  );
  if (format !== undefined) return format;
  const rule = formats.map(({ tensorSpec }) => inputText(tensorSpec)).join(", or ");
  throw createError(
    `${model} must take ${rule} and give ${output}, got ${actualInput} and ${actualOutput}`,
  );
}

/** `image UINT8 [-1, 224, 224, 3]` */
export function inputText(tensorSpec: TensorSpec): string {
  return tensorText([batched(tensorSpec)]);
}

function batched({ dims, ...spec }: TensorSpec): TensorSpec {
  return { ...spec, dims: [-1, ...dims] };
}

function tensorText(specs: readonly TensorSpec[]): string {
  return specs
    .map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`)
    .join(", ");
}
