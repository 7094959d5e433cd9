import { createHash, randomInt } from "node:crypto";
import { mkdir, open, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type ModelInfo, readSidecar, sidecarPath } from "./model-info.ts";

/** Bytes per write and per progress event. */
const blockBytes = 4 * 1024 * 1024;

/** Model file that is being written as `….onnx.part`. */
export interface ModelFileDraft {
  readonly path: string;
  /**
   * Writes the complete file and replaces what an earlier call wrote.
   *
   * @param chunks - Each chunk is written before the next one is read.
   */
  write(chunks: Iterable<Uint8Array>, onBlock?: (bytes: number) => void): Promise<void>;
  /** Renames the file to its final name and writes its sidecar `<file>.json`. */
  publish(info: (sha256: string, bytes: number) => ModelInfo): Promise<ModelInfo>;
  /** Removes the file unless it was published. */
  discard(): Promise<void>;
}

/**
 * Starts a model file, which appears atomically when it is published. Creates its folder. Several processes may write the same file
 * concurrently.
 *
 * @throws {Error} if the folder cannot be written or `file` is a folder
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
 * Renames a complete file to its final name, unless another process has published the same content meanwhile.
 *
 * @param part - Path in the same folder; its name ends in `.part`.
 */
export async function publishFile(part: string, file: string, info: ModelInfo): Promise<void> {
  await rejectFolder(file);
  const [size, before] = await Promise.all([sizeOf(file), readSidecar(file)]);
  if (size === info.bytes && before?.bytes === size && before.sha256 === info.sha256) return;
  // the sidecar first: after an interruption in between, the next `ensureModel` detects that the two do not match
  const sidecar = part.replace(/\.part$/, ".json");
  try {
    await writeFile(sidecar, `${JSON.stringify(info, null, 2)}\n`);
    await rename(sidecar, sidecarPath(file));
  } finally {
    await rm(sidecar, { force: true });
  }
  await rename(part, file);
}

/** Throws before anything is written if the output is a folder, which a file cannot replace. */
async function rejectFolder(file: string): Promise<void> {
  if (!(await isFolder(file))) return;
  throw Object.assign(new Error(`${file}: is a folder`), { code: "EISDIR" });
}

/** Writes a new file and computes its SHA-256. */
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
        const size = Math.min(chunk.byteLength - from, blockBytes - filled);
        block.set(chunk.subarray(from, from + size), filled);
        from += size;
        filled += size;
        if (filled === blockBytes) await flush();
      }
    }
    if (filled > 0) await flush();
  } finally {
    await handle.close();
  }
  return { sha256: hash.digest("hex"), bytes: written };
}

/** Returns `model.<pid>.<n>.onnx.part`, which git ignores. */
function partPath(file: string): string {
  return join(dirname(file), `${basename(file, ".onnx")}.${ownSuffix()}.onnx.part`);
}

/** Unique suffix `<pid>.<n>`. Process ids alone are not unique: containers that share a folder can have the same ones. */
export function ownSuffix(): string {
  return `${process.pid}.${randomInt(2 ** 32)}`;
}

/**
 * Creates a folder and its parents. Node's own `recursive` option loops forever on file systems that report an existing folder as
 * missing, such as /proc.
 */
export async function makeFolder(path: string): Promise<void> {
  const failure = await mkdir(path).catch(unlessCode("EEXIST", "ENOENT"));
  if (failure !== "ENOENT") return;
  if (dirname(path) !== path) await makeFolder(dirname(path));
  await mkdir(path).catch(unlessCode("EEXIST"));
}

/** Returns an error handler that returns the error's code if it is one of `codes` and rethrows other errors. */
export function unlessCode(...codes: readonly string[]): (error: NodeJS.ErrnoException) => string {
  return (error) => {
    if (error.code !== undefined && codes.includes(error.code)) return error.code;
    throw error;
  };
}

/** Age at which a partial file counts as abandoned: writing takes seconds. */
export const abandonedAfterMs = 10 * 60_000;

/** Removes partial files of killed processes, 351 MB each. */
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

/** Converts a file system error to a {@link FolderError} with a readable message; returns other errors unchanged. */
export function folderErrorOf(error: unknown, folder: string, keptBytes: number): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code === "ENOSPC" || code === "EDQUOT") {
    const rest = keptBytes > 0 ? `; ${Math.round(keptBytes / 1e6)} MB are kept` : "";
    return new FolderError(`${folder}: the disk is full${rest}`, { cause: error });
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
