import { gigaMacsPerImage } from "../../contract/model-signature.ts";

/** Time of one execution of the model by its batch: `firstMs` for one image, and `perImageMs` for each one more. */
export interface ComputeTime {
  readonly firstMs: number;
  readonly perImageMs: number;
}

export function executionMs({ firstMs, perImageMs }: ComputeTime, images: number): number {
  return firstMs + perImageMs * Math.max(0, images - 1);
}

/** Images per second of the model alone in large batches, of which a part `sustainedShare` of the peak is reached. */
export function modelOnlyRate(fp16DenseTflops: number, sustainedShare: number): number {
  return (fp16DenseTflops * 1000 * sustainedShare) / (2 * gigaMacsPerImage);
}

/**
 * Time that one more image adds to a batch. TensorRT runs in FP16; ONNX Runtime's CUDA provider in TF32, which the tensor
 * cores do half as fast.
 */
export function perImageMs(
  backend: "onnxruntime" | "tensorrt",
  fp16DenseTflops: number,
  sustainedShare: number,
): number {
  return (backend === "onnxruntime" ? 2000 : 1000) / modelOnlyRate(fp16DenseTflops, sustainedShare);
}

/** Multiply-accumulates of one image by the operator of the ONNX graph that does them, from the layers of ViT-B/32. */
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
