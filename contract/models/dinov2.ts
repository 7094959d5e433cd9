import type { FactSource, ModelSpecInput } from "../model-spec.ts";
import { dinov2, quoted, transformers } from "./sources.ts";

/** Facts that the DINOv2 models share. Reference: DINOv2's evaluation transform, and the published BitImageProcessor. */

type ImageInput = NonNullable<ModelSpecInput["towers"]["image"]>["input"];

export const dinov2Image = {
  size: { width: 224, height: 224 },
  resize: { mode: "shortest-edge", edge: 256 },
  filter: "bicubic",
  rgbConversion: "before-resize",
  valueRange: "0..1",
  mean: [0.485, 0.456, 0.406],
  std: [0.229, 0.224, 0.225],
  channelOrder: "rgb",
  layout: "nchw",
} as const satisfies ImageInput;

export const dinov2ImageSources: FactSource[] = [
  quoted(
    `${dinov2} dinov2/data/transforms.py:79-81`,
    "resize_size: int = 256, interpolation=transforms.InterpolationMode.BICUBIC, crop_size: int = 224,",
  ),
  quoted(
    `${dinov2} dinov2/data/transforms.py:42-43`,
    "IMAGENET_DEFAULT_MEAN = (0.485, 0.456, 0.406) IMAGENET_DEFAULT_STD = (0.229, 0.224, 0.225)",
  ),
  quoted(
    "facebook/dinov2-small and -base preprocessor_config.json, SHA-256 14e780d86fa1861f8751f868d7f45425b5feb55c38ca26f152ca5097ab30f828",
    '"do_convert_rgb":true, "resample":3, "rescale_factor":0.00392156862745098, "size":{"shortest_edge":256}',
  ),
];

export const dinov2EmbeddingSources: readonly FactSource[] = [
  quoted(
    `${dinov2} dinov2/models/vision_transformer.py:266 (class token after the final LayerNorm, no L2 step)`,
    '"x_norm_clstoken": x_norm[:, 0],',
  ),
  quoted(
    `${transformers} models/dinov2/modeling_dinov2.py:417 (pooler_output)`,
    "pooled_output = sequence_output[:, 0, :]",
  ),
];

export const dinov2LicenceSources: FactSource[] = [
  quoted(`${dinov2} MODEL_CARD.md:32`, "- **License:** Apache License 2.0"),
];
