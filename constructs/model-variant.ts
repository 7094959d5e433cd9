import {
  type ModelName,
  openclipVitB32,
  openclipVitB32Trt,
} from "../inference-image/src/contract/model-signature.ts";
import type { Accelerator } from "./gpu-host.ts";

export type TritonBackend = "onnx" | "tensorrt";
export type Variant = "single-gpu" | "multi-gpu-4x" | "cpu";

/** The model of a backend. */
export function modelOf(backend: TritonBackend): ModelName {
  return backend === "tensorrt" ? openclipVitB32Trt.name : openclipVitB32.name;
}

/** The named configuration that fits what a Triton runs on. */
export function variantFor(accelerator: Accelerator, gpus: readonly number[]): Variant {
  if (accelerator === "cpu") return "cpu";
  return gpus.length === 1 ? "single-gpu" : "multi-gpu-4x";
}

/** GPUs that a variant uses, as its container counts them. */
export const variantGpus: Readonly<Record<Variant, readonly number[]>> = {
  "single-gpu": [0],
  "multi-gpu-4x": [0, 1, 2, 3],
  cpu: [],
};
