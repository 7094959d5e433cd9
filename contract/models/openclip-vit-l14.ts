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
  `${openClip} docs/model_profile.csv:49 (millions of parameters; GFLOPs = 2 × MACs)`,
  "ViT-L-14,224,1024,768,768,427.62,303.97,123.65,175.33,162.03,13.3",
);

/**
 * OpenCLIP ViT-L/14, trained on LAION-2B. Reference: open_clip v3.3.0. Its normalisation is not CLIP's; OpenAI's own ViT-L/14 has
 * CLIP's.
 */
export const openclipVitL14 = modelSpec.parse({
  name: "openclip-vit-l14",
  towers: {
    image: {
      input: { ...openClipImage, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
      millionParameters: 303.97,
      gigaMacsPerItem: 81.08,
    },
    text: { input: clipText, millionParameters: 123.65, gigaMacsPerItem: 6.65 },
  },
  embedding: { width: 768, normalisedBy: "server" },
  batching: defaultBatching,
  licence: {
    weights: "MIT",
    restriction:
      "Any deployed use case of the model - whether commercial or not - is currently out of scope.",
  },
  weights: {
    name: "laion2b_s32b_b82k",
    host: "huggingface",
    repository: "laion/CLIP-ViT-L-14-laion2B-s32B-b82K",
    revision: "1627032197142fbe2a7cfec626f4ced3ae60d07a",
    // not the name that open_clip requests, open_clip_model.safetensors, which was not found in the repository
    file: "open_clip_pytorch_model.safetensors",
    bytes: 1_710_517_748,
    sha256: "7d129ed747e0ed53e82dfcc140382b51be66b56e6a9bdc3258afd2846e3bb019",
  },
  sources: {
    ...openClipSources("ViT-L-14", 768, profile, [
      quoted(`${openClip} src/open_clip/pretrained.py:47`, "'interpolation': 'bicubic',"),
      quoted(
        `${openClip} docs/PRETRAINED.md:85`,
        "inception style normalization `[-1, 1]` is used via a mean and std of `[0.5, 0.5, 0.5]`.",
      ),
      quoted(`${openClip} src/open_clip/constants.py:5`, "INCEPTION_MEAN = (0.5, 0.5, 0.5)"),
    ]),
    imageCost: [
      profile,
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:1177 (GMACs)`,
        "81.08",
      ),
    ],
    batching: [defaultBatchingSource],
    licence: [
      quoted(
        "embeddings-benchmark/mteb@0281023b673b6a6c5d523b3a937d8f8b2c09d572 mteb/models/openclip_models.py",
        'license="mit",',
      ),
      quoted(
        "https://huggingface.co/laion/CLIP-ViT-L-14-laion2B-s32B-b82K (restriction in the model card)",
      ),
    ],
    weights: [
      quoted(
        `${openClip} src/open_clip/pretrained.py:303-305`,
        "laion2b_s32b_b82k=_pcfg(hf_hub='laion/CLIP-ViT-L-14-laion2B-s32B-b82K/'",
      ),
      quoted(
        "embeddings-benchmark/mteb@0281023b673b6a6c5d523b3a937d8f8b2c09d572 mteb/models/openclip_models.py",
        'revision="1627032197142fbe2a7cfec626f4ced3ae60d07a",',
      ),
      pinned("file name, size and SHA-256", 2, 'filename="open_clip_pytorch_model.safetensors"'),
    ],
  },
} satisfies ModelSpecInput);
