import { type ModelSpecInput, modelSpec } from "../model-spec.ts";
import {
  dinov2EmbeddingSources,
  dinov2Image,
  dinov2ImageSources,
  dinov2LicenceSources,
} from "./dinov2.ts";
import {
  defaultBatching,
  defaultBatchingSource,
  derived,
  dinov2,
  pinned,
  quoted,
  timm,
  transformerMacs,
} from "./sources.ts";

/** DINOv2 small (ViT-S/14 without registers), at 224 px: 257 tokens. Position embeddings are stored for 518 px. */
export const dinov2Small = modelSpec.parse({
  name: "dinov2-small",
  towers: {
    image: { input: dinov2Image, millionParameters: 22.06, gigaMacsPerItem: 6.124 },
  },
  embedding: { width: 384, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "Apache-2.0" },
  weights: {
    name: "dinov2-small",
    host: "huggingface",
    repository: "facebook/dinov2-small",
    revision: "ed25f3a31f01632728cabb09d1542f84ab7b0056",
    file: "model.safetensors",
    bytes: 88_249_960,
    sha256: "ae1e99fcefd534ed978cdeb8326f08030c96e28b7a81ffcbc98a857c84d14be1",
  },
  sources: {
    imageInput: dinov2ImageSources,
    imageCost: [
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:1114 (parameters; GMACs at 518 px)`,
        "vit_small_patch14_dinov2,518,…,22.06,46.76,…",
      ),
      derived(`MACs at 224 px; at 518 px the formula gives 46.697 (timm: 46.76)`, transformerMacs),
    ],
    embedding: [
      quoted(`${dinov2} MODEL_CARD.md:16`, "- 384 for ViT-S."),
      ...dinov2EmbeddingSources,
    ],
    batching: [defaultBatchingSource],
    licence: dinov2LicenceSources,
    weights: [
      quoted(
        "embeddings-benchmark/mteb docs/overview/available_models/image.md (commit not known)",
        "ed25f3a31f01632728cabb09d1542f84ab7b0056",
      ),
      pinned("size and SHA-256", 10),
    ],
  },
} satisfies ModelSpecInput);
