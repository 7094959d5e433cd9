import {
  embeddingTensor,
  encodedImage,
  imagePixels,
  imageTowerOf,
  normalisedImage,
  tokenIds,
} from "./model-shapes.ts";
import type { ImageTower, Modality, ModelSpec, TextTower } from "./model-spec.ts";
import type { TensorSpec } from "./tensor.ts";

/** Models of Triton's repository that follow from a model spec: names, inputs and outputs, batching. */

/**
 * Variants of a model in Triton's repository: `fp32`, `trt`, `u8` and `jpeg` return embeddings of images and differ in payload format
 * and execution, `preprocess` is a step of `jpeg`, `text` and `text-trt` return embeddings of texts.
 */
export const tritonVariants = [
  "fp32",
  "trt",
  "u8",
  "preprocess",
  "jpeg",
  "text",
  "text-trt",
] as const;
export type TritonVariant = (typeof tritonVariants)[number];

/** Inputs and outputs of a model of the repository, and its batching in Triton. Shapes are without the batch dimension. */
export interface TritonModel {
  /** Folder in the model repository and name in requests. */
  readonly name: string;
  /** Triton's `platform`, or `backend` for the Python backend. */
  readonly platform: "onnxruntime_onnx" | "ensemble" | "python";
  readonly inputs: readonly [TensorSpec];
  readonly outputs: readonly [TensorSpec];
  readonly maxBatchSize: number;
  readonly preferredBatchSizes: readonly number[];
  /** Maximum delay of a request to fill a batch. */
  readonly maxQueueDelayMicroseconds: number;
}

/** Fields of a spec that the repository depends on. */
export type TritonSpec = Pick<ModelSpec, "name" | "towers" | "embedding" | "batching">;

const suffixes: Readonly<Record<TritonVariant, string>> = {
  fp32: "",
  trt: "_trt",
  u8: "_u8",
  preprocess: "_preprocess",
  jpeg: "_jpeg",
  text: "_text",
  "text-trt": "_text_trt",
};

/** Name of a variant in the model repository: `openclip_vit_b32_trt`. */
export function tritonModelName({ name }: Pick<ModelSpec, "name">, variant: TritonVariant): string {
  return `${name.replaceAll("-", "_")}${suffixes[variant]}`;
}

/** Modality of a variant's input. */
export function variantModality(variant: TritonVariant): Modality {
  return variant === "text" || variant === "text-trt" ? "text" : "image";
}

/** Variants of the towers that a model has. */
export function variantsOf({ towers }: Pick<ModelSpec, "towers">): readonly TritonVariant[] {
  return tritonVariants.filter((variant) => towers[variantModality(variant)] !== undefined);
}

/** Default of the maximum delay of a request to fill a batch. */
export const queueDelayMicroseconds = 5_000;

/**
 * Returns the name, tensors and batching of a variant.
 *
 * @throws {Error} if the model lacks the variant's tower
 */
export function tritonModel(spec: TritonSpec, variant: TritonVariant): TritonModel {
  const { maximum, preferred } = spec.batching;
  const common = { name: tritonModelName(spec, variant), maxBatchSize: maximum };
  if (variant === "preprocess") {
    return { ...common, ...preprocessTensors(imageTowerOf(spec)), ...withoutQueue };
  }
  const tower = variantModality(variant) === "text" ? textTower(spec) : imageTowerOf(spec);
  return {
    ...common,
    platform: variant === "jpeg" ? "ensemble" : "onnxruntime_onnx",
    inputs: [inputOf(spec, variant)],
    outputs: [embeddingTensor(spec, tower)],
    preferredBatchSizes: preferred,
    maxQueueDelayMicroseconds: queueDelayMicroseconds,
  };
}

const withoutQueue = { preferredBatchSizes: [], maxQueueDelayMicroseconds: 0 } as const;

/** Tensors of the step of the ensemble that decodes, resizes and crops: image file to pixels. */
function preprocessTensors(
  tower: ImageTower,
): Pick<TritonModel, "platform" | "inputs" | "outputs"> {
  return {
    platform: "python",
    inputs: [{ ...encodedImage(tower), name: "encoded" }],
    outputs: [{ ...imagePixels(tower), name: "pixels" }],
  };
}

function inputOf(spec: TritonSpec, variant: Exclude<TritonVariant, "preprocess">): TensorSpec {
  switch (variant) {
    case "fp32":
    case "trt":
      return normalisedImage(imageTowerOf(spec));
    case "u8":
      return imagePixels(imageTowerOf(spec));
    case "jpeg":
      return encodedImage(imageTowerOf(spec));
    case "text":
    case "text-trt":
      return tokenIds(textTower(spec));
  }
}

function textTower({ name, towers }: TritonSpec): TextTower {
  if (towers.text === undefined) throw new Error(`${name}: has no text tower`);
  return towers.text;
}
