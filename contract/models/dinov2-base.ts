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

/** DINOv2 base (ViT-B/14 without registers), at 224 px: 257 tokens. Position embeddings are stored for 518 px. */
export const dinov2Base = modelSpec.parse({
  name: "dinov2-base",
  towers: {
    image: { input: dinov2Image, millionParameters: 86.58, gigaMacsPerItem: 23.161 },
  },
  embedding: { width: 768, normalisedBy: "server" },
  batching: defaultBatching,
  licence: { weights: "Apache-2.0" },
  weights: {
    name: "dinov2-base",
    host: "huggingface",
    repository: "facebook/dinov2-base",
    revision: "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
    file: "model.safetensors",
    bytes: 346_345_912,
    sha256: "d73036b56966966d07975d696bde331762f37297e2f095de8cea0040c3aa0841",
  },
  sources: {
    imageInput: dinov2ImageSources,
    imageCost: [
      quoted(
        `${timm} results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv:1280 (parameters; GMACs at 518 px)`,
        "vit_base_patch14_dinov2,518,…,86.58,151.71,…",
      ),
      derived(
        `MACs at 224 px; at 518 px the formula gives 151.574 (timm: 151.71)`,
        transformerMacs,
      ),
    ],
    embedding: [
      quoted(`${dinov2} MODEL_CARD.md:17`, "- 768 for ViT-B."),
      ...dinov2EmbeddingSources,
    ],
    batching: [defaultBatchingSource],
    licence: dinov2LicenceSources,
    weights: [
      quoted(
        "embeddings-benchmark/mteb docs/overview/available_models/image.md (commit not known)",
        "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
      ),
      pinned("size and SHA-256", 9),
    ],
  },
} satisfies ModelSpecInput);
