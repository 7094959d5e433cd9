import { execFile } from "node:child_process";
import { cpus, release, totalmem, type } from "node:os";
import { promisify } from "node:util";
import type { VerifyRecord } from "../record/record.ts";

/** Description of this machine. Records of different machines are not compared. */
export function describeMachine(): VerifyRecord["subject"]["machine"] {
  const cores = cpus();
  return {
    cpu: (cores[0]?.model ?? "unknown").trim() || "unknown",
    cores: Math.max(1, cores.length),
    memoryMiB: Math.round(totalmem() / 1024 / 1024),
    os: `${type()} ${release()}`,
    node: process.version,
  };
}

/** Commit of the working tree and whether it has changes; empty without a git repository. */
export async function describeCommit(
  folder: string,
): Promise<{ readonly commit?: string; readonly dirty?: boolean }> {
  const git = async (...args: string[]) =>
    (await promisify(execFile)("git", args, { cwd: folder, timeout: 10_000 })).stdout.trim();
  try {
    const commit = await git("rev-parse", "HEAD");
    return { commit, dirty: (await git("status", "--porcelain")) !== "" };
  } catch {
    return {};
  }
}
