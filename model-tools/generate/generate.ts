import { createHash } from "node:crypto";
import { join } from "node:path";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds, modelPath } from "../../contract/repository-files.ts";
import type { ModelKind } from "../../contract/triton-models.ts";
import { projectFolder, projectRepository } from "../files/folders.ts";
import { type ModelInfo, readSidecar } from "../files/model-info.ts";
import { draftModelFile, sizeOf } from "../files/publish-file.ts";
import { onnxBytes, onnxChunks } from "../onnx/writer.ts";
import { type ModelProfile, randomImageTower } from "./architectures.ts";
import { randomTextTower } from "./text-architectures.ts";
import { opset } from "./transformer-blocks.ts";

export interface GenerateOptions {
  readonly spec: ModelSpec;
  /**
   * Tower of the model.
   *
   * @default "image"
   */
  readonly modality?: Modality;
  /**
   * `full`: the architecture of the model, ViT-B/32 is 351 MB; a small stand-in if the architecture is not known. `tiny`: the same
   * tensors, under 1 MB for ViT-B/32.
   */
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

/** Path of the ONNX file of a model kind in a model repository: `fp32` is the image tower, `text` the text tower. */
export function modelFile(
  spec: Pick<ModelSpec, "name">,
  modelKind: ModelKind = "fp32",
  repository: string = projectRepository,
): string {
  return join(repository, modelPath(spec, modelKind));
}

/**
 * Writes a tower of a model with seeded random weights as an ONNX file, and the sidecar `<file>.json`. The file appears
 * atomically: it is written as `….onnx.part` and renamed.
 *
 * @throws {Error} with one line if the model has no such tower, the seed is not a 32-bit integer or the file cannot be written.
 */
export async function generateModel(options: GenerateOptions): Promise<ModelInfo> {
  const { spec, modality = "image", profile, seed, file, onProgress } = options;
  if (!Number.isInteger(seed) || seed < -(2 ** 31) || seed >= 2 ** 32) {
    throw new Error(`seed must be a 32-bit integer, got ${seed}`);
  }
  const { architecture, model } = randomTower(spec, modality, profile, seed);
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
      model: spec.name,
      seed,
      architecture,
      opset,
    }));
  } finally {
    await draft.discard();
  }
}

function randomTower(spec: ModelSpec, modality: Modality, profile: ModelProfile, seed: number) {
  return (modality === "text" ? randomTextTower : randomImageTower)(spec, profile, seed);
}

/**
 * Returns the path of a model's tower in the project's model repository, generated if it is missing or truncated. A file from
 * another source is kept. Safe to call concurrently, also from several processes.
 */
export function ensureGeneratedModel(
  spec: ModelSpec,
  onProgress?: GenerateOptions["onProgress"],
  modality: Modality = "image",
): Promise<string> {
  const file = modelFile(spec, fp32Kinds[modality]);
  return once(file, () => ensureModel(spec, file, "full", onProgress, modality));
}

/**
 * Returns the path of a model's tiny tower in `node_modules/.cache/clipstack/`, generated if it is missing. Its name contains its
 * checksum.
 */
export function ensureTinyModel(spec: ModelSpec, modality: Modality = "image"): Promise<string> {
  const hash = createHash("sha256");
  const { model } = randomTower(spec, modality, "tiny", defaultSeed);
  for (const chunk of onnxChunks(model)) hash.update(chunk);
  const name = `tiny-${hash.digest("hex").slice(0, 16)}.onnx`;
  const file = join(projectFolder, "node_modules", ".cache", "clipstack", name);
  return once(file, () => ensureModel(spec, file, "tiny", undefined, modality));
}

/** Generations in progress in this process, by file. Other processes write their own `.part` files. */
const running = new Map<string, Promise<string>>();

function once(file: string, work: () => Promise<string>): Promise<string> {
  const started = running.get(file);
  if (started !== undefined) return started;
  const generation = work().finally(() => running.delete(file));
  running.set(file, generation);
  return generation;
}

/**
 * Generates `file` if it is missing, empty, or a generated file with another size than in its sidecar. A file from another source is
 * kept.
 */
export async function ensureModel(
  spec: ModelSpec,
  file: string,
  profile: ModelProfile,
  onProgress?: GenerateOptions["onProgress"],
  modality: Modality = "image",
): Promise<string> {
  const [size, sidecar] = await Promise.all([sizeOf(file), readSidecar(file)]);
  const cutShort = sidecar?.source === "generated" && sidecar.bytes !== size;
  if (size === undefined || size === 0 || cutShort) {
    await generateModel({ spec, modality, profile, seed: defaultSeed, file, onProgress });
  }
  return file;
}
