import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import { clipText, openClipImage, openClipSources } from "./open-clip.ts";
import {
  defaultBatching,
  defaultBatchingSource,
  openClip,
  pinned,
  quoted,
  timm,
} from "./sources.ts";

const profile = quoted(
  `${openClip} docs/model_profile.csv:26 (millions of parameters; GFLOPs = 2 × MACs)`,
  "ViT-B-16,224,768,512,512,149.62,86.19,63.43,41.09,35.13,5.96",
);

/** OpenCLIP ViT-B/16, trained on LAION-2B. Reference: open_clip v3.3.0. */
export const openclipVitB16 = modelSpec.parse({
  name: "openclip-vit-b16",
  towers: {
    image: { input: openClipImage, millionParameters: 86.19, gigaMacsPerItem: 17.58 },
    text: { input: clipText, millionParameters: 63.43, gigaMacsPerItem: 2.98 },
  },
  embedding: { width: 512, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "MIT" },
  weights: {
    name: "laion2b_s34b_b88k",
    host: "huggingface",
    repository: "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
    revision: "7288da5a0d6f0b51c4a2b27c624837a9236d0112",
    file: "open_clip_model.safetensors",
    bytes: 598_516_980,
    sha256: "3f25d29d3cc74e1d25d47e0593b4dd0864ced1e9b4d8e486a247ca4502f227f1",
  },
  sources: {
    ...openClipSources("ViT-B-16", 512, profile),
    imageCost: [
      profile,
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:630 (GMACs)`,
        "17.58",
      ),
    ],
    batching: [defaultBatchingSource],
    licence: [
      quoted(
        "https://gr.tbb.rip/models/laion/CLIP-ViT-B-16-laion2B-s34B-b88K (copy of the model card)",
        "license mit",
      ),
      pinned("licence of the revision", 1, "MIT"),
    ],
    weights: [
      quoted(
        `${openClip} src/open_clip/pretrained.py:247`,
        "laion2b_s34b_b88k=_pcfg(hf_hub='laion/CLIP-ViT-B-16-laion2B-s34B-b88K/'),",
      ),
      quoted(
        `${openClip} src/open_clip/constants.py (file name)`,
        'HF_SAFE_WEIGHTS_NAME = "open_clip_model.safetensors"',
      ),
      pinned(
        "revision",
        9,
        '"backbone_weights_revision": "7288da5a0d6f0b51c4a2b27c624837a9236d0112",',
      ),
      pinned(
        "size and SHA-256, without revision and file name",
        1,
        "OPEN_CLIP_CHECKPOINT_BYTES = 598_516_980",
      ),
    ],
  },
} satisfies ModelSpecInput);
