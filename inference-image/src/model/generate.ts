import { createHash } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openclipVitB32 } from "../contract/model-signature.ts";
import { type ModelInfo, readSidecar, sidecarPath } from "./model-info.ts";
import { onnxBytes, onnxChunks } from "./onnx-writer.ts";
import { type ModelProfile, opset, profiles, visionTransformer } from "./vision-transformer.ts";

export interface GenerateOptions {
  /** `vit-b-32`: 88 million parameters, 351 MB. `tiny`: the same graph and signature, under 1 MB. */
  readonly profile: ModelProfile;
  /** 32-bit integer. The same seed gives the same bytes on every machine. */
  readonly seed: number;
  /** Where to write. Its folder is made; a file that is there is replaced in one step. */
  readonly file: string;
  /** Called about every 4 MiB. */
  readonly onProgress?: (progress: { readonly bytes: number; readonly total: number }) => void;
}

/** Seed of the models that {@link ensureGeneratedModel} and {@link ensureTinyModel} write. */
export const defaultSeed = 1;

const checkout = fileURLToPath(new URL("../../../", import.meta.url));

/** The model file of this checkout's model repository. */
export const repositoryModel = join(
  checkout,
  "model_repository",
  openclipVitB32.name,
  "1",
  "model.onnx",
);

/** How much is written at once, and how often progress is told. */
const blockBytes = 4 * 1024 * 1024;

/**
 * Write the image tower with seeded random weights as an ONNX file, and the sidecar `<file>.json`.
 *
 * The file appears whole or not at all: it is written under another name, `….onnx.part`, and renamed.
 *
 * @throws {Error} one line, when the seed is not a 32-bit integer or the file cannot be written.
 */
export async function generateModel(options: GenerateOptions): Promise<ModelInfo> {
  const { profile, seed, file, onProgress } = options;
  if (!Number.isInteger(seed) || seed < -(2 ** 31) || seed >= 2 ** 32) {
    throw new Error(`seed must be a 32-bit integer, got ${seed}`);
  }
  const model = visionTransformer(profiles[profile], seed);
  const total = onnxBytes(model);

  await mkdir(dirname(file), { recursive: true });
  await removeAbandonedParts(file);
  const part = partPath(file);
  try {
    const sha256 = await writeBlocks(part, onnxChunks(model), (bytes) =>
      onProgress?.({ bytes, total }),
    );
    const info: ModelInfo = {
      schema: 1,
      sha256,
      bytes: total,
      source: "generated",
      weights: "random",
      seed,
      architecture: profile,
      opset,
    };
    await publish(part, file, info);
    return info;
  } finally {
    await rm(part, { force: true });
  }
}

/**
 * Path of the full-size model of this checkout, generated when it is missing or cut short. A file that was put there by
 * other means is left alone. Safe to call from several places and processes at once.
 */
export async function ensureGeneratedModel(
  onProgress?: GenerateOptions["onProgress"],
): Promise<string> {
  running.full ??= ensureModel(repositoryModel, "vit-b-32", onProgress).finally(() => {
    running.full = undefined;
  });
  return running.full;
}

/** Path of the tiny model in `node_modules/.cache/clipstack/`, generated when it is missing. Its name has its checksum. */
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

/** One generation at a time in this process; other processes are kept apart by their own `.part` file. */
const running: { full?: Promise<string>; tiny?: Promise<string> } = {};

/**
 * Generate `file` when it is missing, empty, or a generated one whose size is not that of its sidecar. Any other file was
 * put there by somebody and is left alone.
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

/** Put a finished file in its place, unless another process has put the same one there meanwhile. */
async function publish(part: string, file: string, info: ModelInfo): Promise<void> {
  const [size, before] = await Promise.all([sizeOf(file), readSidecar(file)]);
  if (size === info.bytes && before?.bytes === size && before.sha256 === info.sha256) return;
  // The sidecar first: were this stopped in between, the next `ensure` would see that the two do not belong together.
  const sidecar = part.replace(/\.part$/, ".json");
  try {
    await writeFile(sidecar, `${JSON.stringify(info, null, 2)}\n`);
    await rename(sidecar, sidecarPath(file));
  } finally {
    await rm(sidecar, { force: true });
  }
  await rename(part, file);
}

async function writeBlocks(
  path: string,
  chunks: Iterable<Uint8Array>,
  onBlock: (bytes: number) => void,
): Promise<string> {
  const hash = createHash("sha256");
  const handle = await open(path, "wx");
  try {
    const block = Buffer.alloc(blockBytes);
    let filled = 0;
    let written = 0;
    const flush = async () => {
      const full = block.subarray(0, filled);
      hash.update(full);
      await handle.write(full);
      written += filled;
      filled = 0;
      onBlock(written);
    };
    for (const chunk of chunks) {
      for (let from = 0; from < chunk.byteLength; ) {
        const taken = Math.min(chunk.byteLength - from, blockBytes - filled);
        block.set(chunk.subarray(from, from + taken), filled);
        from += taken;
        filled += taken;
        if (filled === blockBytes) await flush();
      }
    }
    if (filled > 0) await flush();
  } finally {
    await handle.close();
  }
  return hash.digest("hex");
}

/** `model.<pid>.<n>.onnx.part`: nobody else's, and git ignores it. */
function partPath(file: string): string {
  partCount += 1;
  return join(dirname(file), `${basename(file, ".onnx")}.${process.pid}.${partCount}.onnx.part`);
}
let partCount = 0;

/** A part that is older than this is nobody's any more: writing takes seconds. */
const abandonedAfterMs = 10 * 60_000;

/** Remove what a process that was killed left behind: 351 MB each. */
async function removeAbandonedParts(file: string): Promise<void> {
  const stem = `${basename(file, ".onnx")}.`;
  for (const name of await readdir(dirname(file))) {
    if (!name.startsWith(stem) || !/^\d+\.\d+\.onnx\.(part|json)$/.test(name.slice(stem.length))) {
      continue;
    }
    const part = join(dirname(file), name);
    const writtenAt = (await stat(part).catch(() => undefined))?.mtimeMs ?? Date.now();
    if (Date.now() - writtenAt > abandonedAfterMs) await rm(part, { force: true });
  }
}

async function sizeOf(file: string): Promise<number | undefined> {
  return (await stat(file).catch(() => undefined))?.size;
}
