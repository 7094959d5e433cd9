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
 * MobileCLIP2-S2. Reference: open_clip v3.3.0. Parameters and MACs are those before the re-parameterisation of the export. The weights are Apple's file, because the checksum of open_clip's was not found.
 */
export const mobileclip2S2 = modelSpec.parse({
  name: "mobileclip2-s2",
  towers: {
    image: { input: mobileClip2Image, millionParameters: 35.82, gigaMacsPerItem: 7.91 },
    text: { input: clipText, millionParameters: 63.43, gigaMacsPerItem: 2.98 },
  },
  embedding: { width: 512, normalisedBy: "server" },
  batching: defaultBatching,
  licence: mobileClip2Licence,
  weights: {
    name: "dfndr2b",
    host: "huggingface",
    repository: "apple/MobileCLIP2-S2",
    revision: "72424e7025436db18f15c3eff6ee8c7c15ad4481",
    file: "mobileclip2_s2.pt",
    bytes: 398_071_149,
    sha256: "37c2d839a856491f2fcc82c40dc28672dbd0907235b4cd4c38dfff6457f0c09f",
  },
  sources: {
    imageInput: [
      quoted(`${openClip} src/open_clip/model_configs/MobileCLIP2-S2.json`, '"image_size": 256'),
      ...mobileClip2ImageSources,
    ],
    imageCost: [
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:1139`,
        "fastvit_mci2,256,…,35.82,7.91,…",
      ),
    ],
    textInput: mobileClip2TextSources("MobileCLIP2-S2"),
    textCost: [
      quoted(`${mobileClip} README.md:161 (millions, image + text)`, "35.7 + 63.4"),
      derived(
        `${openClip} docs/model_profile.csv:8`,
        "MACs of ViT-B/32's text tower, which has the same shape: 5.96 GFLOPs / 2",
      ),
    ],
    embedding: [
      ...openClipEmbeddingSources("MobileCLIP2-S2", 512),
      quoted(
        `${mobileClip} README.md`,
        "image_features /= image_features.norm(dim=-1, keepdim=True)",
      ),
    ],
    batching: [defaultBatchingSource],
    licence: mobileClip2LicenceSources,
    weights: [
      quoted(
        `${openClip} src/open_clip/pretrained.py:631`,
        "dfndr2b=_mccfg(hf_hub='timm/MobileCLIP2-S2-OpenCLIP/')",
      ),
      pinned("revision, size and SHA-256", 8),
    ],
  },
} satisfies ModelSpecInput);
