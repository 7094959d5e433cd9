import { openHttpClient } from "../src/http-client.ts";
import { readMetrics } from "../src/instance-metrics.ts";
import { metricSum } from "../src/prometheus.ts";
import { type MemoryReading, measureMemory, residentMiB, type ServiceMemory } from "./memory.ts";
import { clients, type StudyPath, type StudyRun } from "./study-run.ts";

const bytesPerMiB = 1024 * 1024;
/** So many clients with the largest batch: what buffers grow to. */
const loadConcurrency = 4;

const notes = [
  "Memory of a gateway is with that of the Tritons that it asks, where they run on this machine.",
  "Memory of the GPUs is that of all services together.",
];

/** Memory of each service, at rest and under load, one service after the other while all of them run. */
export async function studyMemory(run: StudyRun): Promise<void> {
  const memories: ServiceMemory[] = [];
  const batch = Math.max(...run.grid.batchSizes);
  const services = new Map<string, StudyPath>();
  for (const at of run.paths) {
    if (!services.has(at.target.service)) services.set(at.target.service, at);
  }
  for (const [service, at] of services) {
    memories.push(
      await measureMemory(
        service,
        () => read(run, at),
        () => run.measure("memory", at, { batch, load: clients(loadConcurrency) }),
      ),
    );
    if (memories.length > 1) continue;
    run.keep({
      study: "memory",
      environment: run.environment,
      services: memories,
      notes: [...notes],
    });
  }
}

async function read(
  { open, readResident }: StudyRun,
  { target }: StudyPath,
): Promise<MemoryReading> {
  const gpus = (await open.readGpus?.().catch(() => [])) ?? [];
  const used = gpus.flatMap(({ memoryUsedMiB }) => memoryUsedMiB ?? []);
  return {
    residentMiB:
      target.pids.length > 0
        ? residentMiB(target.pids)
        : ((await readResident?.(target.service)) ?? (await residentByMetrics(target.metrics))),
    gpuMemoryMiB: used.length === 0 ? undefined : used.reduce((sum, mib) => sum + mib, 0),
  };
}

/** Of servers that say so themselves: the embed server does, Triton does not. */
async function residentByMetrics(
  metrics: StudyPath["target"]["metrics"],
): Promise<number | undefined> {
  const http = openHttpClient(2);
  try {
    const bytes = await Promise.all(
      metrics.map(async (source) =>
        metricSum(await readMetrics(http, source), "process_resident_memory_bytes"),
      ),
    );
    if (bytes.length === 0 || bytes.includes(undefined)) return undefined;
    return bytes.reduce<number>((sum, value) => sum + (value ?? 0), 0) / bytesPerMiB;
  } catch {
    return undefined;
  } finally {
    await http.close();
  }
}
