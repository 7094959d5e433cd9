import { daliThreads, tensorrtWorkspaceBytes } from "../../contract/model-config.ts";
import { imageTowerOf, type WeightsPrecision, weightsMiB } from "../../contract/model-shapes.ts";
import type { ImageTower, ModelSpec, TextTower } from "../../contract/model-spec.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { finding } from "./findings.ts";
import type { GpuId } from "./gpus.ts";

/**
 * Estimates of GPU memory, in MiB. Their sum for embed (ONNX), Triton ONNX and Triton TensorRT with ViT-B/32's image tower, one instance
 * each, is 3144 MiB = 3.3 GB. The published measurements are 3.3 GB on an A100 and 2.8 GB on an RTX 4080.
 */
export const vram = {
  /** CUDA context, cuBLAS and cuDNN of one process. */
  processMiB: 512,
  /** Additional memory while TensorRT builds an engine. Only one build at a time runs on a GPU. */
  buildWorkspaceMiB: tensorrtWorkspaceBytes / 1024 / 1024,
  /** Buffers of nvJPEG: DALI's default of 16 MiB for each thread of a pipeline. */
  decoderMiB: 16 * daliThreads,
  /** Decoded photo of 12 megapixels, RGB. A batch is decoded at once, and DALI keeps the memory. */
  decodedPhotoMiB: Math.ceil((12e6 * 3) / 1024 ** 2),
  /** Share of the memory for models. The rest is for the driver and fragmentation. */
  usableShare: 0.9,
} as const;

/** Estimated arena of one execution instance of the model of the published measurements. */
const measuredArena = { miB: 256, batch: 32, tower: imageTowerOf(openclipVitB32) } as const;

/** Fields of a spec on which GPU memory depends. */
export type VramModel = Pick<ModelSpec, "name" | "towers" | "batching">;

/** GPU use of one process on one GPU. */
export interface VramUse {
  readonly service: string;
  readonly backend: "onnxruntime" | "tensorrt" | "pytorch";
  /** Execution instances of each model on this GPU. */
  readonly instances: number;
  readonly models: readonly VramModel[];
  /**
   * Served versions of each model, to which a deployment adds another. It is loaded under a second name before the model is reloaded.
   *
   * @default - one version, which is not replaced
   */
  readonly versions?: number;
  /**
   * Whether the process may reload its models, with the new instances loaded before the old ones are unloaded.
   *
   * @default false
   */
  readonly reloads?: boolean;
  /**
   * Whether the process decodes JPEG files on the GPU.
   *
   * @default false
   */
  readonly decodes?: boolean;
}

/**
 * Returns the estimated arena of one execution instance for a batch, in MiB: inputs, activations and outputs.
 *
 * Activations are positions × channels. A model applies each weight once per position, so that positions are multiply-accumulates /
 * parameters; channels grow with the cube root of the parameters, as depth grows with width. Relative to ViT-B/32 the arena is therefore
 * batch × MACs / parameters^⅔. An estimate: for EfficientNet-Lite0 it is 208 MiB for 32 images, and the two largest neighbouring tensors of its
 * graph (112 × 112 × 16 and × 96) are 172 MiB.
 */
export function activationsMiB(
  { millionParameters, gigaMacsPerItem }: ImageTower | TextTower,
  batch: number,
): number {
  const { miB, batch: measuredBatch, tower } = measuredArena;
  const size = (batch * gigaMacsPerItem) / millionParameters ** (2 / 3);
  const measuredSize = (measuredBatch * tower.gigaMacsPerItem) / tower.millionParameters ** (2 / 3);
  return Math.ceil((miB * size) / measuredSize);
}

/** Returns the weights of all towers of some models, in MiB. */
export function weightsOfMiB(models: readonly VramModel[], precision: WeightsPrecision): number {
  return towersOf(models).reduce((sum, { tower }) => sum + weightsMiB(tower, precision), 0);
}

/** Returns the estimated memory of one process on one GPU, in MiB. */
export function vramMiB(use: VramUse): number {
  return vram.processMiB + instancesMiB(use);
}

function instancesMiB(use: VramUse): number {
  return towerUses(use).reduce((sum, { miB }) => sum + miB, decodersMiB(use));
}

/** Memory of the DALI pipelines, one for each model with an image tower. */
function decodersMiB({ decodes = false, models }: VramUse): number {
  const images = decodes ? models.filter(({ towers }) => towers.image !== undefined) : [];
  return images.reduce(
    (sum, { batching }) => sum + vram.decoderMiB + batching.maximum * vram.decodedPhotoMiB,
    0,
  );
}

interface NamedTower {
  /** Name of the model and its modality. */
  readonly name: string;
  readonly tower: ImageTower | TextTower;
  readonly batch: number;
}

function towersOf(models: readonly VramModel[]): readonly NamedTower[] {
  return models.flatMap(({ name, towers, batching }) =>
    Object.entries(towers).map(([modality, tower]) => ({
      name: `${name} ${modality}`,
      tower,
      batch: batching.maximum,
    })),
  );
}

/** Precisions in which a backend keeps the weights in memory. PyTorch keeps two, because autocast converts the weights for each batch. */
const precisionsOf = {
  onnxruntime: ["fp32"],
  tensorrt: ["fp16"],
  pytorch: ["fp32", "fp16"],
} as const satisfies Record<VramUse["backend"], readonly WeightsPrecision[]>;

/** Memory of all instances of each tower in all versions. */
function towerUses({ backend, instances, models, versions = 1 }: VramUse) {
  return towersOf(models).map(({ name, tower, batch }) => {
    const weights = precisionsOf[backend].reduce((sum, it) => sum + weightsMiB(tower, it), 0);
    return { name, miB: versions * instances * (weights + activationsMiB(tower, batch)) };
  });
}

/** Instances that are loaded in addition during a reload. */
function reloadOf(use: VramUse): VramUse {
  return { ...use, versions: use.versions === undefined ? 1 : 2 };
}

interface Part {
  readonly name: string;
  readonly miB: number;
}

function partsOf(use: VramUse): readonly Part[] {
  return [
    { name: use.service, miB: vramMiB(use) },
    ...(use.reloads
      ? [{ name: `a reload of ${use.service}`, miB: instancesMiB(reloadOf(use)) }]
      : []),
  ];
}

/** Lists the memory of each tower in all processes, reloads included, and of the processes; empty for a single tower. */
function towerParts(uses: readonly VramUse[]): readonly Part[] {
  const sums = new Map<string, number>();
  for (const use of uses) {
    const reloaded = use.reloads ? towerUses(reloadOf(use)) : [];
    for (const { name, miB } of [...towerUses(use), ...reloaded]) {
      sums.set(name, (sums.get(name) ?? 0) + miB);
    }
  }
  if (sums.size < 2) return [];
  const processes = uses.length === 1 ? "1 process" : `${uses.length} processes`;
  return [
    ...[...sums].map(([name, miB]) => ({ name, miB })),
    { name: `CUDA of ${processes}`, miB: uses.length * vram.processMiB },
  ];
}

const listOf = (parts: readonly Part[], separator: string) =>
  parts.map(({ name, miB }) => `${name} ${miB}`).join(separator);

/** Rejects processes that do not fit the memory of their GPU. */
export function vramFindings(
  gpu: GpuId,
  uses: readonly VramUse[],
  gpuVramMiB: number,
  path = "gpu",
): readonly string[] {
  const usable = Math.floor(gpuVramMiB * vram.usableShare);
  const builds = uses.some(({ backend }) => backend === "tensorrt")
    ? [{ name: "a TensorRT build", miB: vram.buildWorkspaceMiB }]
    : [];
  const parts = [...uses.flatMap(partsOf), ...builds];
  const needed = parts.reduce((sum, { miB }) => sum + miB, 0);
  if (needed <= usable) return [];
  const towers = towerParts(uses);
  const byTower = towers.length === 0 ? "" : `; by model: ${listOf([...towers, ...builds], " + ")}`;
  return [
    finding(
      path,
      `have room for the models: GPU ${gpu} has ${gpuVramMiB} MiB, ${usable} usable, and they need ${needed} (${listOf(parts, " + ")}${byTower}): serve fewer models or towers, disable a service, or use a GPU with more memory`,
    ),
  ];
}
