import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Names are `clipstack-verify-<pid of the owner>-<random>`. */
const prefix = "clipstack-verify-";
const owned = new RegExp(`^${prefix}(\\d+)-[A-Za-z0-9]+$`);

/** Creates a temporary folder for one run, and removes those whose owner is no longer running. */
export function makeScratchFolder(parent: string = tmpdir()): string {
  for (const name of readdirSync(parent)) {
    const pid = owned.exec(name)?.[1];
    if (pid === undefined || isRunning(Number(pid))) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // owned by another user
    }
  }
  return mkdtempSync(join(parent, `${prefix}${process.pid}-`));
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}
