import { readdirSync, readFileSync } from "node:fs";

/** Length of a clock tick in milliseconds; `sysconf(_SC_CLK_TCK)` is 100 on every Linux supported by Node. */
export const tickMs = 10;

/** Process group and CPU time of a process; `undefined` if it has ended. */
export function processTime(pid: string): { group: number; cpuMs: number } | undefined {
  try {
    return parseProcessStat(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    // the process has ended
    return undefined;
  }
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
