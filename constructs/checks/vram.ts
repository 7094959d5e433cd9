import { tensorrtWorkspaceBytes } from "../../contract/model-config.ts";
import type { Finding } from "./findings.ts";
import type { GpuId } from "./gpus.ts";

/**
 * Estimates of GPU memory, in MiB. Their sum for embed (ONNX), Triton ONNX and Triton TensorRT, one instance each, is
 * 3146 MiB = 3.3 GB. The published measurements are 3.3 GB on an A100 and 2.8 GB on an RTX 4080.
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
  /** Additional memory while TensorRT builds an engine. Only one build at a time runs on a GPU. */
  buildWorkspaceMiB: tensorrtWorkspaceBytes / 1024 / 1024,
  /** Share of the memory for models. The rest is for the driver and fragmentation. */
  usableShare: 0.9,
} as const;

/** GPU use of one process on one GPU. */
export interface VramUse {
  readonly service: string;
  readonly backend: "onnxruntime" | "tensorrt";
  /** Execution instances of the process on this GPU. */
  readonly instances: number;
  /**
   * Whether the process may reload its model, with the new instances loaded before the old ones are unloaded.
   *
   * @default false
   */
  readonly reloads?: boolean;
}

/** Returns the estimated memory of one process on one GPU, in MiB. */
export function vramMiB(use: VramUse): number {
  return vram.processMiB + instancesMiB(use);
}

function instancesMiB({ backend, instances }: VramUse): number {
  const weights = backend === "tensorrt" ? vram.weightsFp16MiB : vram.weightsFp32MiB;
  return instances * (weights + vram.activationsMiB);
}

/** Rejects processes that do not fit the memory of their GPU. */
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
