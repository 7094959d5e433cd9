import {
  linkSync,
  mkdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { DedupeError, systemReason } from "./dedupe-error.ts";

/** A process that takes over from a dead one is done in far less. */
const staleTakeoverMs = 10_000;

/**
 * SQLite's lock is a folder beside the file here, and a process that is killed leaves it behind. So the process that has
 * the file writes its number beside it: when that process is gone, the lock is removed and SQLite rolls back what was
 * half written. The file of the number appears with its content, and one process at a time removes a dead one's, so that
 * of several that start at once one gets it.
 *
 * @param path - Of the database, absolute.
 * @param file - The same, as it was named.
 * @returns Gives it back.
 * @throws {DedupeError} when another process has it
 */
export function takeDatabase(path: string, file: string): () => void {
  const owner = `${path}.owner`;
  for (let attempt = 0; attempt < 3; attempt++) {
    if (claim(owner, file)) {
      removeFolder(`${path}.lock`);
      return () => {
        if (ownerOf(owner) === process.pid) rmSync(owner, { force: true });
      };
    }
    const pid = ownerOf(owner);
    if (pid !== undefined && isRunning(pid)) {
      throw new DedupeError(
        "failed",
        `'${file}' is in use by process ${pid}; if that is another program, remove '${file}.owner'`,
      );
    }
    removeDead(owner, file);
  }
  throw new DedupeError("failed", `'${file}' is in use`);
}

/** @returns False when there is an owner. */
function claim(owner: string, file: string): boolean {
  const own = `${owner}.${process.pid}`;
  try {
    writeFileSync(own, String(process.pid));
    try {
      linkSync(own, owner);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") throw error;
      // a file system without hard links: the file is empty for a moment
      writeFileSync(owner, String(process.pid), { flag: "wx" });
    }
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw new DedupeError("usage", `--db '${file}' cannot be written: ${systemReason(error)}`, {
      cause: error,
    });
  } finally {
    rmSync(own, { force: true });
  }
}

/** Remove the number of a process that is gone. Whoever comes in between finds the folder, and is told to wait. */
function removeDead(owner: string, file: string): void {
  const taking = `${owner}.taking`;
  try {
    mkdirSync(taking);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const since = statSync(taking, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    if (Date.now() - since > staleTakeoverMs) removeFolder(taking);
    throw new DedupeError("failed", `'${file}' is being opened by another process: try again`);
  }
  try {
    // it may be another one by now, which is alive
    const pid = ownerOf(owner);
    if (pid === undefined || !isRunning(pid)) rmSync(owner, { force: true });
  } finally {
    removeFolder(taking);
  }
}

function ownerOf(owner: string): number | undefined {
  try {
    return Number(readFileSync(owner, "utf8"));
  } catch {
    return undefined;
  }
}

function removeFolder(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
}

function isRunning(pid: number): boolean {
  if (!Number.isInteger(pid) || pid < 1) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
