import { readdirSync, readFileSync } from "node:fs";

/** Cumulative CPU time of the machine and of process groups, in milliseconds. Linux only. */
export interface CpuReading {
  /** Busy time of all cores. */
  readonly busyMs: number;
  /** Busy and idle time of all cores. */
  readonly totalMs: number;
  /** CPU time by process group, including ended children. */
  readonly groups: ReadonlyMap<number, number>;
}

/** Length of a clock tick in milliseconds; `sysconf(_SC_CLK_TCK)` is 100 on every Linux supported by Node. */
const tickMs = 10;

/** Reads `/proc`; `undefined` on systems without it. */
export function readCpu(): CpuReading | undefined {
  try {
    const { busyMs, totalMs } = machineTime(readFileSync("/proc/stat", "utf8"));
    const groups = new Map<number, number>();
    for (const name of readdirSync("/proc")) {
      if (!/^\d+$/.test(name)) continue;
      const process = processTime(name);
      if (process === undefined) continue;
      groups.set(process.group, (groups.get(process.group) ?? 0) + process.cpuMs);
    }
    return { busyMs, totalMs, groups };
  } catch {
    return undefined;
  }
}

function processTime(pid: string): { group: number; cpuMs: number } | undefined {
  try {
    return parseProcessStat(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    // the process has ended
    return undefined;
  }
}

/** Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. */
export function machineTime(text: string): { busyMs: number; totalMs: number } {
  const ticks = text.split("\n", 1)[0]!.trim().split(/\s+/).slice(1, 9).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { busyMs: (total - idle) * tickMs, totalMs: total * tickMs };
}

/** Parses `/proc/<pid>/stat`. The process name is in parentheses and may contain any character. */
export function parseProcessStat(text: string): { group: number; cpuMs: number } {
  const fields = text
    .slice(text.lastIndexOf(")") + 2)
    .split(" ")
    .map(Number);
  // after the name: state, ppid, pgrp, …; utime, stime, cutime and cstime are the 12th to 15th
  const ticks = fields.slice(11, 15).reduce((sum, value) => sum + value, 0);
  return { group: fields[2] ?? 0, cpuMs: ticks * tickMs };
}

/** CPU time of a process group between two readings, in milliseconds. */
export function groupCpuMs(before: CpuReading, after: CpuReading, group: number): number {
  return (after.groups.get(group) ?? 0) - (before.groups.get(group) ?? 0);
}

/**
 * CPU utilisation of the machine by processes outside the given groups between two readings, 0..1; these disturb a
 * measurement.
 */
export function othersShare(
  before: CpuReading,
  after: CpuReading,
  groups: readonly number[],
): number {
  const groupsMs = groups.reduce((sum, group) => sum + groupCpuMs(before, after, group), 0);
  const totalMs = after.totalMs - before.totalMs;
  const othersMs = after.busyMs - before.busyMs - groupsMs;
  return totalMs > 0 ? Math.min(1, Math.max(0, othersMs / totalMs)) : 0;
}

/** Process group of this process. Includes the time of its children once they have ended. */
export function ownGroup(): number {
  return processTime("self")?.group ?? 0;
}

/** Resident memory of a process group, in 10⁶ bytes; `undefined` on systems without `/proc`. */
export function residentMB(group: number): number | undefined {
  try {
    let bytes = 0;
    for (const name of readdirSync("/proc")) {
      if (!/^\d+$/.test(name) || processTime(name)?.group !== group) continue;
      const kib = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${name}/status`, "utf8"))?.[1];
      bytes += Number(kib ?? 0) * 1024;
    }
    return bytes / 1e6;
  } catch {
    return undefined;
  }
}
