import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import { clipText, openClipImage, openClipSources } from "./open-clip.ts";
import { chosen, defaultBatching, openClip, pinned, quoted, timm } from "./sources.ts";

const profile = quoted(
  `${openClip} docs/model_profile.csv:8 (millions of parameters; GFLOPs = 2 × MACs)`,
  "ViT-B-32,224,768,512,512,151.28,87.85,63.43,14.78,8.82,5.96",
);

/** OpenCLIP ViT-B/32, trained on LAION-2B. Reference: open_clip v3.3.0. */
export const openclipVitB32 = modelSpec.parse({
  name: "openclip-vit-b32",
  towers: {
    image: { input: openClipImage, millionParameters: 87.85, gigaMacsPerItem: 4.41 },
    text: { input: clipText, millionParameters: 63.43, gigaMacsPerItem: 2.98 },
  },
  embedding: { width: 512, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "MIT" },
  weights: {
    name: "laion2b_s34b_b79k",
    host: "huggingface",
    repository: "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
    revision: "1a25a446712ba5ee05982a381eed697ef9b435cf",
    file: "open_clip_model.safetensors",
    bytes: 605_143_316,
    sha256: "ac4f8c4b88af6d963118cbf40ad93176d092abbedfcb752601ae1866352656e6",
  },
  sources: {
    ...openClipSources("ViT-B-32", 512, profile),
    imageCost: [
      profile,
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:130 (GMACs; its 88.22 M parameters are not used)`,
        "vit_base_patch32_clip_224,224,10127.52,101.084,1024,88.22,4.41,5.01",
      ),
    ],
    batching: [chosen("no publisher states any")],
    licence: [
      quoted(
        "embeddings-benchmark/mteb@0281023b673b6a6c5d523b3a937d8f8b2c09d572 mteb/models/openclip_models.py",
        'license="mit",',
      ),
    ],
    weights: [
      quoted(
        `${openClip} src/open_clip/pretrained.py:195`,
        "laion2b_s34b_b79k=_pcfg(hf_hub='laion/CLIP-ViT-B-32-laion2B-s34B-b79K/'),",
      ),
      pinned("revision", 8, 'OPENCLIP_MODEL_REVISION = "1a25a446712ba5ee05982a381eed697ef9b435cf"'),
      pinned("size and SHA-256", 6, "OPENCLIP_MODEL_BYTES = 605_143_316"),
    ],
  },
} satisfies ModelSpecInput);
