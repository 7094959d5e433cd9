import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import { efficientNetLite0 } from "./efficientnet.ts";
import { randomWeights, type TowerWeights } from "./transformer-blocks.ts";
import { imageTower, type VisionTransformer } from "./vision-transformer.ts";

/** Architectures of image towers, for files that are written without the original weights. */
export interface ImageArchitecture {
  /** Name in manifests; `stand-in` and `tiny` have only the tensors of the model. */
  readonly name: string;
  /** Sizes of the transformer, if it is one. */
  readonly sizes?: VisionTransformer;
  /** Returns the graph with the given weights. */
  readonly graph: (spec: ModelSpec, weights: TowerWeights) => OnnxModel;
}

function transformer(name: string, sizes: VisionTransformer): ImageArchitecture {
  return { name, sizes, graph: (spec, weights) => imageTower(spec, sizes, weights) };
}

function openClip(patchSide: number, size: "base" | "large"): VisionTransformer {
  const common = { family: "open-clip", patchSide } as const;
  return size === "base"
    ? { ...common, width: 768, layers: 12, heads: 12, mlpWidth: 3072 }
    : { ...common, width: 1024, layers: 24, heads: 16, mlpWidth: 4096 };
}

function dinov2(width: number): VisionTransformer {
  const family = "dinov2";
  return { family, patchSide: 14, width, layers: 12, heads: width / 64, mlpWidth: 4 * width };
}

/**
 * Architectures by name of the model. Sources: open_clip `model_configs/ViT-*.json`, DINOv2 `dinov2/models/vision_transformer.py`.
 */
const known: ReadonlyMap<string, ImageArchitecture> = new Map([
  ["openclip-vit-b32", transformer("vit-b-32", openClip(32, "base"))],
  ["openclip-vit-b16", transformer("vit-b-16", openClip(16, "base"))],
  ["openclip-vit-l14", transformer("vit-l-14", openClip(14, "large"))],
  ["dinov2-small", transformer("dinov2-vit-s-14", dinov2(384))],
  ["dinov2-base", transformer("dinov2-vit-b-14", dinov2(768))],
  ["efficientnet-lite0", { name: "efficientnet-lite0", graph: efficientNetLite0 }],
]);

/** `full`: the architecture of the model, or a stand-in if it is not known. `tiny`: small, for tests. */
export const modelProfiles = ["full", "tiny"] as const;
export type ModelProfile = (typeof modelProfiles)[number];

/** Patches of a small tower along the longer side of the input. */
const smallGrid = 7;
const maxPatchSide = 64;

/** Architecture of a generated image tower. A model whose architecture is not known gets a small stand-in with the same tensors. */
export function architectureOf(spec: ModelSpec, profile: ModelProfile): ImageArchitecture {
  const found = known.get(spec.name);
  if (profile === "full" && found !== undefined) return found;
  return transformer(profile === "tiny" ? "tiny" : "stand-in", smallTransformer(spec));
}

export function smallTransformer(spec: ModelSpec): VisionTransformer {
  const { width, height } = imageTowerOf(spec).input.size;
  const patchSide = Math.min(Math.ceil(Math.max(width, height) / smallGrid), maxPatchSide);
  return { family: "open-clip", patchSide, width: 48, layers: 2, heads: 2, mlpWidth: 192 };
}

/** Returns the image tower of a model with random weights. The same seed gives the same bytes on every machine. */
export function randomImageTower(
  spec: ModelSpec,
  profile: ModelProfile,
  seed: number,
): { readonly architecture: string; readonly model: OnnxModel } {
  const { name, graph } = architectureOf(spec, profile);
  return { architecture: name, model: graph(spec, randomWeights(seed)) };
}
