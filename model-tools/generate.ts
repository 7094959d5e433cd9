import { createHash } from "node:crypto";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { type ModelInfo, readSidecar } from "./model-info.ts";
import { onnxBytes, onnxChunks } from "./onnx-writer.ts";
import { draftModelFile, sizeOf } from "./publish-file.ts";
import { type ModelProfile, opset, profiles, visionTransformer } from "./vision-transformer.ts";

export interface GenerateOptions {
  /** `vit-b-32`: 88 million parameters, 351 MB. `tiny`: the same graph and signature, under 1 MB. */
  readonly profile: ModelProfile;
  /** 32-bit integer. The same seed gives the same bytes on every machine. */
  readonly seed: number;
  /** Output path. Its folder is created; an existing file is replaced atomically. */
  readonly file: string;
  /** Called about every 4 MiB. */
  readonly onProgress?: (progress: { readonly bytes: number; readonly total: number }) => void;
}

/** Seed of the models that {@link ensureGeneratedModel} and {@link ensureTinyModel} write. */
export const defaultSeed = 1;

const checkout = fileURLToPath(new URL("../", import.meta.url));

/** Model file of this checkout's model repository. */
export const repositoryModel = join(
  checkout,
  "model_repository",
  openclipVitB32.name,
  "1",
  "model.onnx",
);

/**
 * Writes the image tower with seeded random weights as an ONNX file, and the sidecar `<file>.json`. The file appears atomically:
 * it is written as `….onnx.part` and renamed.
 *
 * @throws {Error} with one line if the seed is not a 32-bit integer or the file cannot be written.
 */
export async function generateModel(options: GenerateOptions): Promise<ModelInfo> {
  const { profile, seed, file, onProgress } = options;
  if (!Number.isInteger(seed) || seed < -(2 ** 31) || seed >= 2 ** 32) {
    throw new Error(`seed must be a 32-bit integer, got ${seed}`);
  }
  const model = visionTransformer(profiles[profile], seed);
  const total = onnxBytes(model);

  const draft = await draftModelFile(file);
  try {
    await draft.write(onnxChunks(model), (bytes) => onProgress?.({ bytes, total }));
    return await draft.publish((sha256, bytes) => ({
      schema: 1,
      sha256,
      bytes,
      source: "generated",
      weights: "random",
      seed,
      architecture: profile,
      opset,
    }));
  } finally {
    await draft.discard();
  }
}

/**
 * Returns the path of this checkout's full-size model, generated if it is missing or truncated. A file from another source is kept.
 * Safe to call concurrently, also from several processes.
 */
export async function ensureGeneratedModel(
  onProgress?: GenerateOptions["onProgress"],
): Promise<string> {
  running.full ??= ensureModel(repositoryModel, "vit-b-32", onProgress).finally(() => {
    running.full = undefined;
  });
  return running.full;
}

/** Returns the path of the tiny model in `node_modules/.cache/clipstack/`, generated if it is missing. Its name contains its checksum. */
export async function ensureTinyModel(): Promise<string> {
  const hash = createHash("sha256");
  for (const chunk of onnxChunks(visionTransformer(profiles.tiny, defaultSeed))) hash.update(chunk);
  const file = join(
    checkout,
    "node_modules",
    ".cache",
    "clipstack",
    `tiny-${hash.digest("hex").slice(0, 16)}.onnx`,
  );
  running.tiny ??= ensureModel(file, "tiny").finally(() => {
    running.tiny = undefined;
  });
  return running.tiny;
}

/** Generations in progress: one per model in this process. Other processes write their own `.part` files. */
const running: { full?: Promise<string>; tiny?: Promise<string> } = {};

/**
 * Generates `file` if it is missing, empty, or a generated file with another size than in its sidecar. A file from another source is
 * kept.
 */
export async function ensureModel(
  file: string,
  profile: ModelProfile,
  onProgress?: GenerateOptions["onProgress"],
): Promise<string> {
  const [size, sidecar] = await Promise.all([sizeOf(file), readSidecar(file)]);
  const cutShort = sidecar?.source === "generated" && sidecar.bytes !== size;
  if (size === undefined || size === 0 || cutShort) {
    await generateModel({ profile, seed: defaultSeed, file, onProgress });
  }
  return file;
}
