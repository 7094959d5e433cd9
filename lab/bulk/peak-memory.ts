import { readdirSync, readFileSync } from "node:fs";
import { processTime } from "../../target/readings/process-stat.ts";

const sampleMs = 200;

/** Samples the memory of process groups while they run. */
export function peakMemory() {
  let peak = 0;
  const groups = new Set<number>();
  const sample = () => {
    const bytes = [...groups].reduce((sum, group) => sum + proportionalBytes(group), 0);
    peak = Math.max(peak, bytes);
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

/** Resident memory of a process group; a page that n processes share counts 1/n in each. */
function proportionalBytes(group: number): number {
  let bytes = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name) || processTime(name)?.group !== group) continue;
    try {
      const text = readFileSync(`/proc/${name}/smaps_rollup`, "utf8");
      bytes += 1024 * Number(/^Pss:\s+(\d+) kB/m.exec(text)?.[1] ?? 0);
    } catch {
      // it has ended
    }
  }
  return bytes;
}
