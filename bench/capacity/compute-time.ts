import { gigaFlopsPerItem } from "../../contract/model-shapes.ts";
import type { ImageTower } from "../../contract/model-spec.ts";

/** Execution time by batch size: `firstMs` for one image plus `perImageMs` per additional image. */
export interface ComputeTime {
  readonly firstMs: number;
  readonly perImageMs: number;
}

export function executionMs({ firstMs, perImageMs }: ComputeTime, images: number): number {
  return firstMs + perImageMs * Math.max(0, images - 1);
}

/** Images per second of the model alone in large batches, at `sustainedShare` of the peak. */
export function modelOnlyRate(
  tower: ImageTower,
  fp16DenseTflops: number,
  sustainedShare: number,
): number {
  return (fp16DenseTflops * 1000 * sustainedShare) / gigaFlopsPerItem(tower);
}

/**
 * Time per additional image of a batch. TensorRT runs in FP16; ONNX Runtime's CUDA provider in TF32, which has half the
 * throughput on tensor cores.
 */
export function perImageMs(
  tower: ImageTower,
  backend: "onnxruntime" | "tensorrt",
  fp16DenseTflops: number,
  sustainedShare: number,
): number {
  return (
    (backend === "onnxruntime" ? 2000 : 1000) /
    modelOnlyRate(tower, fp16DenseTflops, sustainedShare)
  );
}
