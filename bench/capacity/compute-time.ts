import { gigaMacsPerImage } from "../../contract/model-signature.ts";

/** Execution time by batch size: `firstMs` for one image plus `perImageMs` per additional image. */
export interface ComputeTime {
  readonly firstMs: number;
  readonly perImageMs: number;
}

export function executionMs({ firstMs, perImageMs }: ComputeTime, images: number): number {
  return firstMs + perImageMs * Math.max(0, images - 1);
}

/** Images per second of the model alone in large batches, at `sustainedShare` of the peak. */
export function modelOnlyRate(fp16DenseTflops: number, sustainedShare: number): number {
  return (fp16DenseTflops * 1000 * sustainedShare) / (2 * gigaMacsPerImage);
}

/**
 * Time per additional image of a batch. TensorRT runs in FP16; ONNX Runtime's CUDA provider in TF32, which has half the
 * throughput on tensor cores.
 */
export function perImageMs(
  backend: "onnxruntime" | "tensorrt",
  fp16DenseTflops: number,
  sustainedShare: number,
): number {
  return (backend === "onnxruntime" ? 2000 : 1000) / modelOnlyRate(fp16DenseTflops, sustainedShare);
}

/** Multiply-accumulate operations per image by ONNX operator, from the layers of ViT-B/32. */
export function arithmeticByOperator(): { readonly [operator: string]: number } {
  const tokens = 50; // 7 × 7 patches and the class token
  const width = 768;
  const layers = 12;
  const mlp = 4 * width;
  return {
    Conv: 49 * 3 * 32 * 32 * width,
    // the projection after the attention is exported as Gemm, all other products as MatMul
    Gemm: layers * tokens * width * width,
    MatMul:
      layers *
        (tokens * width * 3 * width + 2 * tokens * tokens * width + 2 * tokens * width * mlp) +
      width * 512,
  };
}

/** Share of an operator in the arithmetic, in per cent. */
export function arithmeticShare(operator: string): number {
  const all = arithmeticByOperator();
  const sum = Object.values(all).reduce((a, b) => a + b, 0);
  return (100 * (all[operator] ?? 0)) / sum;
}
