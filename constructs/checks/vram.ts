import { tensorrtWorkspaceBytes } from "../../contract/model-config.ts";
import type { Finding } from "./findings.ts";
import type { GpuId } from "./gpus.ts";

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
  /** What TensorRT may take on top while it builds an engine. Builds on one GPU are not at the same time. */
  buildWorkspaceMiB: tensorrtWorkspaceBytes / 1024 / 1024,
  /** Part of a GPU that models may plan to use; the rest is the driver's, and fragmentation. */
  usableShare: 0.9,
} as const;

/** One process on one GPU. */
export interface VramUse {
  readonly service: string;
  readonly backend: "onnxruntime" | "tensorrt";
  /** Execution instances of the process on this GPU. */
  readonly instances: number;
  /** Whether it loads a model anew while it runs: the new instances are there before the old ones go. */
  readonly reloads?: boolean;
}

/** Estimate for one process on one GPU, in MiB. */
export function vramMiB(use: VramUse): number {
  return vram.processMiB + instancesMiB(use);
}

function instancesMiB({ backend, instances }: VramUse): number {
  const weights = backend === "tensorrt" ? vram.weightsFp16MiB : vram.weightsFp32MiB;
  return instances * (weights + vram.activationsMiB);
}

/** A GPU when what runs there does not fit. */
export function vramFindings(
  gpu: GpuId,
  uses: readonly VramUse[],
  gpuVramMiB: number,
  path = "gpu",
): readonly Finding[] {
  const usable = Math.floor(gpuVramMiB * vram.usableShare);
  const parts = uses.flatMap((use) => [
    { name: use.service, miB: vramMiB(use) },
    ...(use.reloads ? [{ name: `a reload of ${use.service}`, miB: instancesMiB(use) }] : []),
  ]);
  if (uses.some(({ backend }) => backend === "tensorrt")) {
    parts.push({ name: "a TensorRT build", miB: vram.buildWorkspaceMiB });
  }
  const needed = parts.reduce((sum, { miB }) => sum + miB, 0);
  if (needed <= usable) return [];
  const list = parts.map(({ name, miB }) => `${name} ${miB}`).join(" + ");
  return [
    {
      path,
      must: `have room for the models: GPU ${gpu} has ${gpuVramMiB} MiB, ${usable} usable, and they need ${needed} (${list})`,
    },
  ];
}
