import {
  embeddingTensor,
  encodedBytes,
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
 * Kinds of a model in Triton's repository: `fp32`, `trt`, `u8` and `jpeg` return embeddings of images and differ in payload format
 * and execution, `preprocess` is a step of `jpeg`, `text` and `text-trt` return embeddings of texts.
 */
export const modelKinds = ["fp32", "trt", "u8", "preprocess", "jpeg", "text", "text-trt"] as const;

/**
 * Model kinds that decode JPEG files with DALI, on the GPU if there is one: a repository has them only if they are requested.
 * `dali-preprocess` is a step of the ensembles `dali` and `dali-trt`, which return embeddings of the models `fp32` and `trt`.
 */
export const daliKinds = ["dali-preprocess", "dali", "dali-trt"] as const;
export type DaliKind = (typeof daliKinds)[number];

/** Model that follows the DALI pipeline in each ensemble. It accepts the same images preprocessed by the client. */
export const daliModels = { dali: "fp32", "dali-trt": "trt" } as const satisfies Partial<
  Record<DaliKind, ModelKind>
>;

export type ModelKind = (typeof modelKinds)[number] | DaliKind;

/** Inputs and outputs of a model of the repository, and its batching in Triton. Shapes are without the batch dimension. */
export interface TritonModel {
  /** Folder in the model repository and name in requests. */
  readonly name: string;
  /** Triton's `platform`, or `backend` for the Python and DALI backends. */
  readonly platform: "onnxruntime_onnx" | "ensemble" | "python" | "dali";
  readonly inputs: readonly [TensorSpec];
  readonly outputs: readonly [TensorSpec];
  readonly maxBatchSize: number;
  readonly preferredBatchSizes: readonly number[];
  /** Maximum delay of a request to fill a batch. */
  readonly maxQueueDelayMicroseconds: number;
}

/** Fields of a spec that the repository depends on. */
export type TritonSpec = Pick<ModelSpec, "name" | "towers" | "embedding" | "batching">;

const suffixes: Readonly<Record<ModelKind, string>> = {
  fp32: "",
  trt: "_trt",
  u8: "_u8",
  preprocess: "_preprocess",
  jpeg: "_jpeg",
  text: "_text",
  "text-trt": "_text_trt",
  "dali-preprocess": "_dali_preprocess",
  dali: "_dali",
  "dali-trt": "_dali_trt",
};

/** Name of a model kind in the model repository: `openclip_vit_b32_trt`. */
export function tritonModelName({ name }: Pick<ModelSpec, "name">, modelKind: ModelKind): string {
  return `${name.replaceAll("-", "_")}${suffixes[modelKind]}`;
}

/**
 * Second name under which a deployment loads the next version of a model beside the served one. No model of a spec has it, because the
 * names of specs contain no dot.
 */
export function nextModelName(model: string): string {
  return `${model}.next`;
}

/** Modality of a model kind's input. */
export function kindModality(modelKind: ModelKind): Modality {
  return modelKind === "text" || modelKind === "text-trt" ? "text" : "image";
}

/** Model kinds of the towers that a model has, without DALI. */
export function kindsOf({ towers }: Pick<ModelSpec, "towers">): readonly ModelKind[] {
  return modelKinds.filter((modelKind) => towers[kindModality(modelKind)] !== undefined);
}

/** All model kinds of the towers that a model has, DALI included. */
export function allKindsOf(spec: Pick<ModelSpec, "towers">): readonly ModelKind[] {
  return [...kindsOf(spec), ...(spec.towers.image === undefined ? [] : daliKinds)];
}

/** Returns whether a model kind is an ensemble, which has no model file. */
export function isEnsembleKind(modelKind: ModelKind): modelKind is "jpeg" | "dali" | "dali-trt" {
  return modelKind === "jpeg" || modelKind === "dali" || modelKind === "dali-trt";
}

/**
 * Default of the maximum delay of a request to fill a batch. Without a delay, a batch has the requests that arrived while the previous one
 * was computed; with one, every batch below the maximum waits for the whole delay.
 */
export const queueDelayMicroseconds = 0;

/**
 * Returns the name, tensors and batching of a model kind.
 *
 * @throws {Error} if the model lacks the model kind's tower
 */
export function tritonModel(spec: TritonSpec, modelKind: ModelKind): TritonModel {
  const { maximum, preferred } = spec.batching;
  const common = { name: tritonModelName(spec, modelKind), maxBatchSize: maximum };
  if (modelKind === "preprocess") {
    return { ...common, ...preprocessTensors(imageTowerOf(spec)), ...withoutQueue };
  }
  if (modelKind === "dali-preprocess") {
    const queue = {
      preferredBatchSizes: [],
      maxQueueDelayMicroseconds: daliQueueDelayMicroseconds,
    };
    return { ...common, ...daliTensors(imageTowerOf(spec)), ...queue };
  }
  const tower = kindModality(modelKind) === "text" ? textTower(spec) : imageTowerOf(spec);
  return {
    ...common,
    platform: isEnsembleKind(modelKind) ? "ensemble" : "onnxruntime_onnx",
    inputs: [inputOf(spec, modelKind)],
    outputs: [embeddingTensor(spec, tower)],
    preferredBatchSizes: preferred,
    maxQueueDelayMicroseconds: queueDelayMicroseconds,
  };
}

/** Queue delay of the DALI pipeline in µs. The queue delay of the model that follows the pipeline is added to it. */
export const daliQueueDelayMicroseconds = 1_000;

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

/** Tensors of the DALI pipeline: image file to the FP32 input of the image tower. */
function daliTensors(tower: ImageTower): Pick<TritonModel, "platform" | "inputs" | "outputs"> {
  return {
    platform: "dali",
    inputs: [{ ...encodedBytes(tower), name: "encoded" }],
    outputs: [{ ...normalisedImage(tower), name: "normalised" }],
  };
}

function inputOf(
  spec: TritonSpec,
  modelKind: Exclude<ModelKind, "preprocess" | "dali-preprocess">,
): TensorSpec {
  switch (modelKind) {
    case "fp32":
    case "trt":
      return normalisedImage(imageTowerOf(spec));
    case "u8":
      return imagePixels(imageTowerOf(spec));
    case "jpeg":
      return encodedImage(imageTowerOf(spec));
    case "dali":
    case "dali-trt":
      return encodedBytes(imageTowerOf(spec));
    case "text":
    case "text-trt":
      return tokenIds(textTower(spec));
  }
}

function textTower({ name, towers }: TritonSpec): TextTower {
  if (towers.text === undefined) throw new Error(`${name}: has no text tower`);
  return towers.text;
}
