import type { Finding } from "./findings.ts";

/**
 * Memory of a GPU, in MiB. The sum for embed (ONNX), Triton ONNX and Triton TensorRT, one instance each, is 3146 MiB
 * = 3.3 GB: the published measurement on an A100 was 3.3 GB, on an RTX 4080 2.8 GB.
 */
export const vram = {
  /** CUDA context, cuBLAS and cuDNN of one process. */
  processMiB: 512,
  /** 88.2 M parameters × 4 bytes. */
  weightsFp32MiB: 337,
  /** 88.2 M parameters × 2 bytes. */
  weightsFp16MiB: 168,
  /** Arena of one execution instance for a batch of 32: inputs, activations, outputs. */
  activationsMiB: 256,
  /** Part of a GPU that models may plan to use; the rest is the driver's, and fragmentation. */
  usableShare: 0.9,
} as const;

/** One process on one GPU. */
export interface VramUse {
  readonly service: string;
  readonly backend: "onnx" | "tensorrt";
  /** Execution instances of the process on this GPU. */
  readonly instances: number;
}

/** Estimate for one process on one GPU, in MiB. */
export function vramMiB({ backend, instances }: VramUse): number {
  const weights = backend === "tensorrt" ? vram.weightsFp16MiB : vram.weightsFp32MiB;
  return vram.processMiB + instances * (weights + vram.activationsMiB);
}

/** GPU `index` when what runs there does not fit. */
export function vramFindings(
  index: number,
  uses: readonly VramUse[],
  gpuVramMiB: number,
): readonly Finding[] {
  const usable = Math.floor(gpuVramMiB * vram.usableShare);
  const needed = uses.reduce((sum, use) => sum + vramMiB(use), 0);
  if (needed <= usable) return [];
  const parts = uses.map((use) => `${use.service} ${vramMiB(use)}`).join(" + ");
  return [
    `gpu must have room for its models: GPU ${index} needs ${needed} MiB (${parts}), ${usable} of ${gpuVramMiB} MiB are usable`,
  ];
}
