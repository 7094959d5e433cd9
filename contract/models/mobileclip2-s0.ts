import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import {
  mobileClip2Image,
  mobileClip2ImageSources,
  mobileClip2Licence,
  mobileClip2LicenceSources,
  mobileClip2TextSources,
} from "./mobileclip2.ts";
import { clipText, openClipEmbeddingSources } from "./open-clip.ts";
import {
  defaultBatching,
  defaultBatchingSource,
  derived,
  mobileClip,
  openClip,
  pinned,
  quoted,
  timm,
} from "./sources.ts";

/**
 * MobileCLIP2-S0. Reference: open_clip v3.3.0. Parameters and MACs are those before the re-parameterisation of the export.
 */
export const mobileclip2S0 = modelSpec.parse({
  name: "mobileclip2-s0",
  towers: {
    image: { input: mobileClip2Image, millionParameters: 11.41, gigaMacsPerItem: 2.42 },
    text: { input: clipText, millionParameters: 63.43, gigaMacsPerItem: 2.98 },
  },
  embedding: { width: 512, normalisedBy: "server" },
  batching: defaultBatching,
  licence: mobileClip2Licence,
  weights: {
    name: "dfndr2b",
    host: "huggingface",
    repository: "timm/MobileCLIP2-S0-OpenCLIP",
    revision: "095906d28bf54d7584dc411e8ffe448f34289e05",
    file: "open_clip_model.safetensors",
    sha256: "ab91a1a0c4330d6b1913e24d5035dfdea15423316aaec649610c6b1c6ddd0e95",
  },
  sources: {
    imageInput: [
      quoted(`${openClip} src/open_clip/model_configs/MobileCLIP2-S0.json`, '"image_size": 256'),
      ...mobileClip2ImageSources,
    ],
    imageCost: [
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:834`,
        "fastvit_mci0,256,…,11.41,2.42,…",
      ),
    ],
    textInput: mobileClip2TextSources("MobileCLIP2-S0"),
    textCost: [
      quoted(
        "MobileCLIP2-S0 MLX Safetensors Format (page; address not known)",
        "Text Encoder … 63,428,096 parameters",
      ),
      quoted(
        `${mobileClip} README.md:160 (not followed: 42.4 M is the text tower of version 1)`,
        "11.4 + 42.4",
      ),
      derived(
        `${openClip} docs/model_profile.csv:8`,
        "MACs of ViT-B/32's text tower, which has the same shape: 5.96 GFLOPs / 2",
      ),
    ],
    embedding: [
      ...openClipEmbeddingSources("MobileCLIP2-S0", 512),
      quoted(
        `${mobileClip} README.md`,
        "image_features /= image_features.norm(dim=-1, keepdim=True)",
      ),
    ],
    batching: [defaultBatchingSource],
    licence: mobileClip2LicenceSources,
    weights: [
      quoted(
        `${openClip} src/open_clip/pretrained.py:630`,
        "dfndr2b=_mccfg(hf_hub='timm/MobileCLIP2-S0-OpenCLIP/')",
      ),
      pinned("revision and SHA-256", 6),
    ],
  },
} satisfies ModelSpecInput);
