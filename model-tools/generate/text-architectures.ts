import { textTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import type { ModelProfile } from "./architectures.ts";
import { type TextTransformer, textTower } from "./text-transformer.ts";
import { randomWeights } from "./transformer-blocks.ts";

function transformer(family: TextTransformer["family"], width: number): TextTransformer {
  return { family, width, layers: 12, heads: width / 64, mlpWidth: 4 * width };
}

/** Like CLIP's, but a token attends to all others (`no_causal_mask`). */
const mobileClip: TextTransformer = { ...transformer("clip", 512), causal: false };

/**
 * Text towers by name of the model. Sources: open_clip `model_configs/ViT-*.json` and `MobileCLIP2-*.json`, Transformers
 * `models/siglip/configuration_siglip.py`.
 */
const known: ReadonlyMap<string, TextTransformer> = new Map([
  ["openclip-vit-b32", transformer("clip", 512)],
  ["openclip-vit-b16", transformer("clip", 512)],
  ["openclip-vit-l14", transformer("clip", 768)],
  ["mobileclip2-s0", mobileClip],
  ["mobileclip2-s2", mobileClip],
  ["siglip2-base-224", transformer("siglip", 768)],
]);

/** Sizes of a generated text tower, with their name in manifests: `stand-in` if the architecture of the model is not known. */
export function textArchitectureOf(
  spec: ModelSpec,
  profile: ModelProfile,
): { readonly name: string; readonly sizes: TextTransformer } {
  const sizes = known.get(spec.name);
  if (profile === "full" && sizes !== undefined) {
    return { name: `${sizes.family}-text-${sizes.width}`, sizes };
  }
  const { tokenizer } = textTowerOf(spec).input;
  const family = sizes?.family ?? (tokenizer.kind === "clip-bpe" ? "clip" : "siglip");
  const small = { width: 16, layers: 2, heads: 2, mlpWidth: 64, causal: sizes?.causal };
  return { name: profile === "tiny" ? "tiny" : "stand-in", sizes: { family, ...small } };
}

/** Returns the text tower of a model with random weights. The same seed gives the same bytes on every machine. */
export function randomTextTower(
  spec: ModelSpec,
  profile: ModelProfile,
  seed: number,
): { readonly architecture: string; readonly model: OnnxModel } {
  const { name, sizes } = textArchitectureOf(spec, profile);
  return { architecture: name, model: textTower(spec, sizes, randomWeights(seed)) };
}
