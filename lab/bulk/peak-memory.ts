import { readdirSync, readFileSync } from "node:fs";
import { processTime } from "../../target/readings/process-stat.ts";

const sampleMs = 500;
/** Growth of the resident pages at which shared ones are counted again: that takes a core up to 80 ms per process. */
const minGrowth = 1.02;

/** Samples the memory of process groups while they run. */
export function peakMemory() {
  let [peak, peakPages] = [0, 0];
  const groups = new Set<number>();
  const sample = () => {
    const pids = readdirSync("/proc").filter(
      (name) => /^\d+$/.test(name) && groups.has(processTime(name)?.group ?? 0),
    );
    const sum = (file: string, field: RegExp) =>
      pids.reduce((total, pid) => total + numberIn(`/proc/${pid}/${file}`, field), 0);
    const pages = sum("statm", /^\d+ (\d+)/);
    if (pages < minGrowth * peakPages) return;
    peakPages = pages;
    // resident memory; a page that n processes share counts 1/n in each
    peak = Math.max(peak, 1024 * sum("smaps_rollup", /^Pss:\s+(\d+) kB/m));
  };
  return {
    /** Samples until the promise of the child's end resolves. */
    watch: ({ pid, exited }: { readonly pid: number; readonly exited: Promise<unknown> }) => {
      groups.add(pid);
      const timer = setInterval(sample, sampleMs);
      void exited.then(() => clearInterval(timer));
    },
    peakMB: () => peak / 1e6,
  };
}

/** @returns 0 if the process has ended */
function numberIn(file: string, field: RegExp): number {
  try {
    return Number(field.exec(readFileSync(file, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}
