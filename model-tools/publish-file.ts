import { createHash, randomInt } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type ModelInfo, readSidecar, sidecarPath } from "./model-info.ts";

/** Bytes per write and per progress event. */
const blockBytes = 4 * 1024 * 1024;

/** A model file that is being written, under another name: `….onnx.part`. */
export interface ModelFileDraft {
  readonly path: string;
  /**
   * Write the whole file, instead of what was written before.
   *
   * @param chunks - Each chunk is used before the next one is read.
   */
  write(chunks: Iterable<Uint8Array>, onBlock?: (bytes: number) => void): Promise<void>;
  /** Give the file its name, and write its sidecar `<file>.json`. */
  publish(info: (sha256: string, bytes: number) => ModelInfo): Promise<ModelInfo>;
  /** Remove what was not published. */
  discard(): Promise<void>;
}

/**
 * Begin a model file, so that it appears whole or not at all. Its folder is made; several processes may write the same file
 * at once.
 *
 * @throws {Error} when the folder cannot be written, or the file is one
 */
export async function draftModelFile(file: string): Promise<ModelFileDraft> {
  await rejectFolder(file);
  await makeFolder(dirname(file));
  await removeAbandonedParts(file);
  const part = partPath(file);
  let written = { sha256: "", bytes: 0 };
  return {
    path: part,
    async write(chunks, onBlock) {
      await rm(part, { force: true });
      written = await writeBlocks(part, chunks, onBlock);
    },
    async publish(infoOf) {
      const info = infoOf(written.sha256, written.bytes);
      await publishFile(part, file, info);
      return info;
    },
    discard: () => rm(part, { force: true }),
  };
}

/**
 * Put a finished file in its place, unless another process has put the same one there meanwhile.
 *
 * @param part - In the folder of the file; its name ends in `.part`.
 */
export async function publishFile(part: string, file: string, info: ModelInfo): Promise<void> {
  await rejectFolder(file);
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

/** A folder cannot be replaced by a file: known before anything is written. */
async function rejectFolder(file: string): Promise<void> {
  if (!(await isFolder(file))) return;
  throw Object.assign(new Error(`${file}: is a folder`), { code: "EISDIR" });
}

/** Write a new file; its SHA-256 is computed on the way. */
async function writeBlocks(
  path: string,
  chunks: Iterable<Uint8Array>,
  onBlock?: (bytes: number) => void,
): Promise<{ readonly sha256: string; readonly bytes: number }> {
  const hash = createHash("sha256");
  const handle = await open(path, "wx");
  let written = 0;
  try {
    const block = Buffer.alloc(blockBytes);
    let filled = 0;
    const flush = async () => {
      const full = block.subarray(0, filled);
      hash.update(full);
      await handle.writeFile(full);
      written += filled;
      filled = 0;
      onBlock?.(written);
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
  return { sha256: hash.digest("hex"), bytes: written };
}

/** `model.<pid>.<n>.onnx.part`: git ignores it. */
function partPath(file: string): string {
  return join(dirname(file), `${basename(file, ".onnx")}.${ownSuffix()}.onnx.part`);
}

/** Unique suffix `<pid>.<n>`. Process ids alone are not unique: containers that share a folder have the same ones. */
export function ownSuffix(): string {
  return `${process.pid}.${randomInt(2 ** 32)}`;
}

/**
 * Make a folder and those above it. Node's own `recursive` never ends where a file system says that a folder which is there
 * is missing, as /proc does.
 */
export async function makeFolder(path: string): Promise<void> {
  const made = await mkdir(path).catch(unlessCode("EEXIST", "ENOENT"));
  if (made !== "ENOENT") return;
  if (dirname(path) !== path) await makeFolder(dirname(path));
  await mkdir(path).catch(unlessCode("EEXIST"));
}

/** Goes on with the code of an error that is one of these. */
export function unlessCode(...codes: readonly string[]): (error: NodeJS.ErrnoException) => string {
  return (error) => {
    if (error.code !== undefined && codes.includes(error.code)) return error.code;
    throw error;
  };
}

/** Age at which a partial file counts as abandoned: writing takes seconds. */
export const abandonedAfterMs = 10 * 60_000;

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

export async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() ?? false;
}

export async function sizeOf(file: string): Promise<number | undefined> {
  return (await stat(file).catch(() => undefined))?.size;
}

/** An error of the file system in words; any other as it is. */
export function aboutFolder(error: unknown, folder: string, kept: number): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT") {
    const rest = kept > 0 ? `; ${Math.round(kept / 1e6)} MB are kept` : "";
    return new FolderError(`${folder}: no room is left${rest}`, { cause: error });
  }
  if (["EACCES", "EPERM", "EROFS", "ENOTDIR", "EEXIST", "EISDIR", "EFBIG"].includes(code ?? "")) {
    return new FolderError(`${folder}: cannot be written: ${code}`, { cause: error });
  }
  return error;
}

/** A folder cannot be written or its disk is full; the user can fix it. */
export class FolderError extends Error {
  override readonly name = "FolderError";
}
