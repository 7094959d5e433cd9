import type {
  ImageInput,
  ImageTower,
  Modality,
  ModelSpec,
  ModelTower,
  TextInput,
  TextTower,
} from "./model-spec.ts";
import { bytesPerElement, elementCount, type TensorSpec } from "./tensor.ts";
import { UserError } from "./user-error.ts";

/** Tensor shapes and sizes that follow from a model spec. Shapes are without the batch dimension. */

export function imageTowerOf({ name, towers }: Pick<ModelSpec, "name" | "towers">): ImageTower {
  if (towers.image === undefined) throw new UserError(`${name} must have an image tower`);
  return towers.image;
}

export function textTowerOf({ name, towers }: Pick<ModelSpec, "name" | "towers">): TextTower {
  if (towers.text === undefined) throw new Error(`model '${name}' has no text tower`);
  return towers.text;
}

export function requireTower({ name, towers }: ModelSpec, modality: Modality): void {
  const article = modality === "image" ? "an" : "a";
  if (towers[modality] === undefined) {
    throw new UserError(`model ${name} must have ${article} ${modality} tower`);
  }
}

export function requireImages(spec: ModelSpec): void {
  requireTower(spec, "image");
}

/** Facts of a tower. */
export function towerOf({ spec, modality }: ModelTower): ImageTower | TextTower {
  return modality === "image" ? imageTowerOf(spec) : textTowerOf(spec);
}

const channelCount = 3;

/** Payload formats of images. */
export type ImagePayload = "fp32" | "uint8" | "jpeg";

/** FP32 input of the image tower: `[3, height, width]` for `nchw`, `[height, width, 3]` for `nhwc`. */
export function normalisedImage({ input }: Pick<ImageTower, "input">): TensorSpec {
  const { width, height } = input.size;
  const dims =
    input.layout === "nchw" ? [channelCount, height, width] : [height, width, channelCount];
  return { name: input.tensor, dataType: "FP32", dims };
}

/** Facts of an image tower that determine its pixels as a tensor. */
export interface PixelTower {
  readonly input: Pick<ImageInput, "size" | "tensor">;
}

/** Pixels of an image: `[height, width, 3]` UINT8, interleaved RGB, row-major, whatever the layout of the model is. */
export function imagePixels({ input }: PixelTower): TensorSpec {
  const { width, height } = input.size;
  return { name: input.tensor, dataType: "UINT8", dims: [height, width, channelCount] };
}

/** Encoded image (JPEG, PNG or WebP): `[1]` BYTES. */
export function encodedImage({ input }: ImageTower): TensorSpec {
  return { name: input.tensor, dataType: "BYTES", dims: [1] };
}

/**
 * Encoded image for DALI, which does not support BYTES: `[-1]` UINT8, the bytes of the file. The files of a batch have zeros at the end
 * up to the length of the longest.
 */
export function encodedBytes({ input }: ImageTower): TensorSpec {
  return { name: input.tensor, dataType: "UINT8", dims: [-1] };
}

/** Input tensor of the image tower in a payload format. */
export function imageTensor(tower: ImageTower, payload: ImagePayload): TensorSpec {
  return { fp32: normalisedImage, uint8: imagePixels, jpeg: encodedImage }[payload](tower);
}

/** Bytes of one image in a payload format; undefined for `jpeg`, whose size depends on the image. */
export function imageBytes(tower: ImageTower, payload: ImagePayload): number | undefined {
  const { dataType, dims } = imageTensor(tower, payload);
  const bytes = bytesPerElement[dataType];
  return bytes === undefined ? undefined : bytes * elementCount(dims);
}

/** Input of the text tower: `[contextLength]` token ids. */
export function tokenIds({ input }: TextTower): TensorSpec {
  const dataType = input.idType === "int64" ? "INT64" : "INT32";
  return { name: input.tensor, dataType, dims: [input.contextLength] };
}

/** Name of the tokenizer's file, which lies beside the text tower; undefined if a package has the vocabulary, as for CLIP. */
export function tokenizerFile({ tokenizer }: Pick<TextInput, "tokenizer">): string | undefined {
  return tokenizer.kind === "sentencepiece" ? tokenizer.file : undefined;
}

/** Output of a tower: `[width]` FP32. */
export function embeddingTensor(
  { embedding }: Pick<ModelSpec, "embedding">,
  tower: ImageTower | TextTower,
): TensorSpec {
  return { name: tower.output, dataType: "FP32", dims: [embedding.width] };
}

/** Bytes per parameter by precision. Files of precision `int8` also contain scales and layers that stay FP32. */
const bytesPerParameter = { fp32: 4, fp16: 2, int8: 1 } as const;

/** Precision of the weights in memory. */
export type WeightsPrecision = keyof typeof bytesPerParameter;

/** Memory of the weights of a tower in MiB, rounded up. A lower bound for `int8`. */
export function weightsMiB(
  { millionParameters }: ImageTower | TextTower,
  precision: WeightsPrecision,
): number {
  return Math.ceil((millionParameters * 1e6 * bytesPerParameter[precision]) / 1024 ** 2);
}

/** Floating-point operations per image or text, in 10⁹: two per multiply-accumulate. */
export function gigaFlopsPerItem({ gigaMacsPerItem }: ImageTower | TextTower): number {
  return 2 * gigaMacsPerItem;
}
