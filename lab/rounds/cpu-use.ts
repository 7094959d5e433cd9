import { readdirSync, readFileSync } from "node:fs";
import { processTime, tickMs } from "../../target/readings/process-stat.ts";

/** Cumulative CPU time of the machine and of process groups, in milliseconds. Linux only. */
export interface CpuReading {
  /** Busy time of all cores. */
  readonly busyMs: number;
  /** Busy and idle time of all cores. */
  readonly totalMs: number;
  /** CPU time by process group, including ended children. */
  readonly groups: ReadonlyMap<number, number>;
}

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

/** Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. */
export function machineTime(text: string): { busyMs: number; totalMs: number } {
  const ticks = text.split("\n", 1)[0]!.trim().split(/\s+/).slice(1, 9).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  const idle = (ticks[3] ?? 0) + (ticks[4] ?? 0);
  return { busyMs: (total - idle) * tickMs, totalMs: total * tickMs };
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
