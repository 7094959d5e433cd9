import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { MachineSubject } from "../subject/subject.ts";

/** Description of this machine. Records of different machines are not compared. */
export function describeMachine(): MachineSubject {
  const cores = cpus();
  return {
    cpu: (cores[0]?.model ?? "unknown").trim() || "unknown",
    cores: Math.max(1, cores.length),
    memoryMiB: Math.round(totalmem() / 1024 / 1024),
    os: `${type()} ${release()}`,
    node: process.version,
    governor: textOf("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    limits: limitsOf(cpuLimit("/"), process.constrainedMemory()),
  };
}

/** @param memoryBytes - 0 or above the memory of the machine: no limit. */
function limitsOf(cpus: number | undefined, memoryBytes: number): MachineSubject["limits"] {
  const hasMemoryLimit = memoryBytes > 0 && memoryBytes < totalmem();
  if (cpus === undefined && !hasMemoryLimit) return undefined;
  return {
    ...(cpus !== undefined && { cpus }),
    ...(hasMemoryLimit && { memoryMiB: Math.round(memoryBytes / 1024 / 1024) }),
  };
}

/**
 * Cores that the control group of this process may use, of version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us`); undefined: no limit.
 *
 * @param root - Root of the file system.
 */
export function cpuLimit(root: string): number | undefined {
  const groups = (textOf(join(root, "proc/self/cgroup")) ?? "").split("\n").map((line) => {
    const [, controllers = "", path = "/"] = line.split(":");
    return { controllers: controllers.split(","), path };
  });
  const group = (controller: string) =>
    groups.find(({ controllers }) => controllers.includes(controller))?.path ?? "/";
  const mount = join(root, "sys/fs/cgroup");
  // in a container, the path may be relative to the host's root, and the mount be the group itself
  for (const path of [group(""), "/"]) {
    const quota = quotaOf(...(textOf(join(mount, path, "cpu.max")) ?? "").split(" "));
    if (quota !== undefined) return quota;
  }
  for (const path of [group("cpu"), "/"]) {
    const read = (file: string) => textOf(join(mount, "cpu", path, file));
    const quota = quotaOf(read("cpu.cfs_quota_us"), read("cpu.cfs_period_us"));
    if (quota !== undefined) return quota;
  }
  return undefined;
}

/** Cores of a quota per period in microseconds; `max` and -1 are no limit. */
function quotaOf(quota = "", period = ""): number | undefined {
  const cores = Number(quota || Number.NaN) / Number(period || Number.NaN);
  return Number.isFinite(cores) && cores > 0 ? cores : undefined;
}

/** Text of a file without white space around it; undefined if it is missing or empty. */
function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").trim() || undefined;
  } catch {
    return undefined;
  }
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
