import { setTimeout as sleep } from "node:timers/promises";
import { residentMB } from "../../target/readings/process-stat.ts";
import type { StudyResult } from "../record/study-result.ts";

export type ServiceMemory = Extract<StudyResult, { readonly study: "memory" }>["services"][number];

/** Current memory of one service, in MiB; unreadable parts are absent. */
export interface MemoryReading {
  readonly residentMiB?: number;
  readonly gpuMemoryMiB?: number;
}

/** Memory before the first request: by service, and of all GPUs. */
export interface IdleMemory {
  readonly services: ReadonlyMap<string, MemoryReading>;
  readonly gpus: MemoryReading;
}

const bytesPerMiB = 1024 * 1024;
const sampleMs = 200;

/** Resident memory of process groups of this machine, children included; `undefined` without `/proc`. */
export function residentMiB(pids: readonly number[]): number | undefined {
  let sum: number | undefined;
  for (const pid of pids) {
    const megabytes = residentMB(pid);
    // 0 if the process has ended
    if (megabytes === undefined || megabytes === 0) return undefined;
    sum = (sum ?? 0) + (megabytes * 1e6) / bytesPerMiB;
  }
  return sum;
}

/**
 * Samples the memory of a service under load.
 *
 * @param idle - Memory before the first request, because buffers do not shrink afterwards.
 * @param load - Loads the service, and resolves at the end of the load.
 * @returns The idle and the highest memory.
 */
export async function measureMemory(
  service: string,
  idle: MemoryReading,
  read: () => Promise<MemoryReading>,
  load: () => Promise<unknown>,
): Promise<ServiceMemory> {
  let [resident, gpu] = [idle.residentMiB, idle.gpuMemoryMiB];
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
    residentMiB: idle.residentMiB,
    residentUnderLoadMiB: resident,
    gpuMemoryMiB: idle.gpuMemoryMiB,
    gpuMemoryUnderLoadMiB: gpu,
  };
}

function highest(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}
