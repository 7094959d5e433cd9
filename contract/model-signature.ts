import { elementCount, type TensorSpec } from "./tensor.ts";

/** Inputs and outputs of a model, and its batching in Triton. */
export interface ModelSignature {
  /** Folder in the model repository and name in requests. */
  readonly name: string;
  /** Triton's `platform`, or `backend` for the Python backend. */
  readonly platform: "onnxruntime_onnx" | "ensemble" | "python";
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly maxBatchSize: number;
  readonly preferredBatchSizes: readonly number[];
  /** Maximum delay of a request to fill a batch. */
  readonly maxQueueDelayMicroseconds: number;
}

/** OpenCLIP ViT-B/32 image tower: normalised CHW image to vector of 512 floats. */
export const openclipVitB32 = {
  name: "openclip_vit_b32",
  platform: "onnxruntime_onnx",
  inputs: [{ name: "image", dataType: "FP32", dims: [3, 224, 224] }],
  outputs: [{ name: "embedding", dataType: "FP32", dims: [512] }],
  maxBatchSize: 32,
  preferredBatchSizes: [8, 16, 32],
  maxQueueDelayMicroseconds: 5_000,
} as const satisfies ModelSignature;

/** The same file with ONNX Runtime's TensorRT execution provider (FP16). */
export const openclipVitB32Trt = {
  ...openclipVitB32,
  name: "openclip_vit_b32_trt",
} as const satisfies ModelSignature;

/**
 * The same weights with pixels as input: interleaved 8-bit RGB, 150 528 bytes per image. The graph includes the normalisation.
 */
export const openclipVitB32U8 = {
  ...openclipVitB32,
  name: "openclip_vit_b32_u8",
  inputs: [{ name: "image", dataType: "UINT8", dims: [224, 224, 3] }],
} as const satisfies ModelSignature;

/** Encoded image to the pixels of {@link openclipVitB32U8}: decoded, resized and cropped like OpenCLIP. */
export const openclipPreprocess = {
  name: "openclip_preprocess",
  platform: "python",
  inputs: [{ name: "encoded", dataType: "BYTES", dims: [1] }],
  outputs: [{ name: "pixels", dataType: "UINT8", dims: [224, 224, 3] }],
  maxBatchSize: 32,
  preferredBatchSizes: [],
  maxQueueDelayMicroseconds: 0,
} as const satisfies ModelSignature;

/** Ensemble of the two models above: encoded image (JPEG, PNG or WebP, about 10 KB) to embedding. */
export const openclipVitB32Jpeg = {
  ...openclipVitB32,
  name: "openclip_vit_b32_jpeg",
  platform: "ensemble",
  inputs: [{ name: "image", dataType: "BYTES", dims: [1] }],
} as const satisfies ModelSignature;

/** All models of `model_repository/`. */
export const models = [
  openclipVitB32,
  openclipVitB32Trt,
  openclipVitB32U8,
  openclipPreprocess,
  openclipVitB32Jpeg,
] as const;
export type ModelName = (typeof models)[number]["name"];

/** Number of float32 values of an embedding. */
export const embeddingDims = openclipVitB32.outputs[0].dims[0];

/** Side of the model's square input, in pixels. */
export const imageSide = openclipVitB32.inputs[0].dims[1];

/** Number of float32 values of one preprocessed image: 3 × 224 × 224 = 150 528. */
export const imageElements =
  openclipVitB32.inputs[0].dims[0] *
  openclipVitB32.inputs[0].dims[1] *
  openclipVitB32.inputs[0].dims[2];

/** CLIP's pixel normalisation of RGB values in 0..1 (`OPENAI_DATASET_MEAN`, `OPENAI_DATASET_STD` of open_clip). */
export const clipNormalisation = {
  mean: [0.48145466, 0.4578275, 0.40821073],
  std: [0.26862954, 0.26130258, 0.27577711],
} as const;

/** Bytes of one image as pixels: 224 × 224 × 3 = 150 528, 8-bit RGB, interleaved, row-major. */
export const pixelBytes = elementCount(openclipVitB32U8.inputs[0].dims);

/**
 * Multiply-accumulates of the image tower for one image, in 10⁹ (timm's benchmark table for ViT-B/32, 224 px).
 * One multiply-accumulate is two floating-point operations: about 8.8 GFLOP per image.
 */
export const gigaMacsPerImage = 4.41;
