import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Folders are called `clipstack-verify-<pid of their owner>-<random>`. */
const prefix = "clipstack-verify-";
const owned = new RegExp(`^${prefix}(\\d+)-[A-Za-z0-9]+$`);

/** A folder for one run. First those of runs that were killed are removed: no process with their owner's id runs. */
export function makeScratchFolder(parent: string = tmpdir()): string {
  for (const name of readdirSync(parent)) {
    const pid = owned.exec(name)?.[1];
    if (pid === undefined || runs(Number(pid))) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // another user's
    }
  }
  return mkdtempSync(join(parent, `${prefix}${process.pid}-`));
}

function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}
