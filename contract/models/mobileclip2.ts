import type { FactSource, ModelSpecInput } from "../model-spec.ts";
import { clipTextSources, openClipImage, openClipImageSources } from "./open-clip.ts";
import { mobileClip, openClip, quoted, timm } from "./sources.ts";

/** Facts that MobileCLIP2-S0 and -S2 share. Reference: open_clip v3.3.0; timm's image-only entries have another filter. */

type ImageInput = NonNullable<ModelSpecInput["towers"]["image"]>["input"];

export const mobileClip2Image = {
  ...openClipImage,
  size: { width: 256, height: 256 },
  resize: { mode: "shortest-edge", edge: 256 },
  filter: "bilinear",
  mean: [0, 0, 0],
  std: [1, 1, 1],
} as const satisfies ImageInput;

export const mobileClip2ImageSources: readonly FactSource[] = [
  ...openClipImageSources,
  quoted(
    `${openClip} src/open_clip/pretrained.py:84-87`,
    "'mean': (0., 0., 0.), 'std': (1., 1., 1.), 'interpolation': 'bilinear', 'resize_mode': 'shortest',",
  ),
  quoted(`${timm} timm/models/fastvit.py _cfg (not followed)`, '"interpolation": "bicubic"'),
];

/** CLIP's tokenizer. The text tower is not causal, so that the padding changes the embedding. */
export function mobileClip2TextSources(config: string): FactSource[] {
  return [
    quoted(
      `${openClip} src/open_clip/model_configs/${config}.json`,
      '"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12, "no_causal_mask": true',
    ),
    ...clipTextSources,
  ];
}

export const mobileClip2Licence = {
  weights: "apple-amlr",
  restriction:
    "“Research Purposes” does not include any commercial exploitation, product development or use in any commercial product or service.",
};

export const mobileClip2LicenceSources: FactSource[] = [
  quoted(
    `${mobileClip} README.md:238`,
    "- ML models: [Apple ML Research Model TOU](./LICENSE_MODELS)",
  ),
  quoted(`${mobileClip} LICENSE_MODELS:22-28`, "exclusively for Research Purposes."),
  quoted(`${timm} timm/models/fastvit.py`, "license='apple-amlr'"),
];
