import { setTimeout as sleep } from "node:timers/promises";
import { residentMB } from "../baselines/cpu-use.ts";
import type { StudyResult } from "../record/bench-record.ts";

export type ServiceMemory = Extract<StudyResult, { readonly study: "memory" }>["services"][number];

/** Memory of one service now, in MiB; a part that cannot be read here is absent. */
export interface MemoryReading {
  readonly residentMiB?: number;
  readonly gpuMemoryMiB?: number;
}

export type ReadMemory = () => Promise<MemoryReading>;

const bytesPerMiB = 1024 * 1024;
const sampleMs = 200;

/** Resident memory of process groups of this machine, children included; nothing where there is no `/proc`. */
export function residentMiB(pids: readonly number[]): number | undefined {
  let sum: number | undefined;
  for (const pid of pids) {
    const megabytes = residentMB(pid);
    // a process that has ended holds nothing, and that is no figure
    if (megabytes === undefined || megabytes === 0) return undefined;
    sum = (sum ?? 0) + (megabytes * 1e6) / bytesPerMiB;
  }
  return sum;
}

/**
 * The highest memory of a service while it is loaded, beside what it had at rest.
 *
 * @param rest - Read before anything was asked of it: what buffers have grown to stays.
 * @param load - Loads it, and ends.
 */
export async function measureMemory(
  service: string,
  rest: MemoryReading,
  read: ReadMemory,
  load: () => Promise<unknown>,
): Promise<ServiceMemory> {
  let [resident, gpu] = [rest.residentMiB, rest.gpuMemoryMiB];
  const ended = new AbortController();
  const sampling = (async () => {
    while (!ended.signal.aborted) {
      const now = await read();
      resident = highest(resident, now.residentMiB);
      gpu = highest(gpu, now.gpuMemoryMiB);
      await sleep(sampleMs, undefined, { signal: ended.signal }).catch(() => {});
    }
  })();
  try {
    await load();
  } finally {
    ended.abort();
    await sampling;
  }
  return {
    service,
    residentMiB: rest.residentMiB,
    residentUnderLoadMiB: resident,
    gpuMemoryMiB: rest.gpuMemoryMiB,
    gpuMemoryUnderLoadMiB: gpu,
  };
}

function highest(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.max(a, b);
}
