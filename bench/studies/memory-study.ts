import type { BenchTarget, OpenTargets } from "../run/bench-target.ts";
import { openHttpClient } from "../run/http-client.ts";
import { readMetrics } from "../run/instance-metrics.ts";
import { metricSum } from "../run/prometheus.ts";
import { type MemoryReading, measureMemory, residentMiB, type ServiceMemory } from "./memory.ts";
import { clients, type StudyPath, type StudyRun } from "./study-run.ts";

const bytesPerMiB = 1024 * 1024;
/** A server that is busy for longer has no figure of that moment. */
const metricsTimeoutMs = 5_000;
/** So many clients with the largest batch: what buffers grow to. */
const loadConcurrency = 4;

const notes = [
  "At rest is before the first request: a service that was started for it has answered none yet, one that was found running may have.",
  "Memory of a gateway is with that of the Tritons that it asks, where they run on this machine.",
];
const allGpus = "all GPUs, whoever uses them";

/** Memory of every service, and of all GPUs, at one moment. */
export interface MemoryOfAll {
  readonly services: ReadonlyMap<string, MemoryReading>;
  readonly gpus: MemoryReading;
}

/** To be read before anything is asked of the services. */
export async function readMemoryOfAll(
  { targets, readGpus }: OpenTargets,
  readMemory: StudyRun["readMemory"],
): Promise<MemoryOfAll> {
  const services = new Map<string, MemoryReading>();
  for (const target of targets) {
    if (services.has(target.service)) continue;
    services.set(target.service, await read(readMemory, target));
  }
  return { services, gpus: await readAllGpus(readGpus) };
}

/**
 * Memory of each service, at rest and under load, one service after the other while all of them run. The row of all GPUs is what
 * they hold of everybody.
 *
 * @param rest - What {@link readMemoryOfAll} gave when the services had just been started or found.
 */
export async function studyMemory(run: StudyRun, rest: MemoryOfAll): Promise<void> {
  const memories: ServiceMemory[] = [];
  const { readGpus } = run.open;
  let gpus: ServiceMemory | undefined;
  const batch = Math.max(...run.grid.batchSizes);
  const services = new Map<string, StudyPath>();
  for (const at of run.paths) {
    if (!services.has(at.target.service)) services.set(at.target.service, at);
  }
  for (const [service, at] of services) {
    const load = () => run.measure("memory", at, { batch, load: clients(loadConcurrency) });
    const ofAll = async () => {
      gpus = await measureMemory(allGpus, rest.gpus, () => readAllGpus(readGpus), load);
    };
    const own = rest.services.get(service) ?? {};
    memories.push(await measureMemory(service, own, () => read(run.readMemory, at.target), ofAll));
    if (memories.length > 1) continue;
    run.keep({
      study: "memory",
      environment: run.environment,
      services: memories,
      notes: [...notes],
    });
  }
  if (gpus?.gpuMemoryMiB !== undefined) memories.push(gpus);
}

async function readAllGpus(readGpus: StudyRun["open"]["readGpus"]): Promise<MemoryReading> {
  const gpus = (await readGpus?.().catch(() => [])) ?? [];
  const used = gpus.flatMap(({ memoryUsedMiB }) => memoryUsedMiB ?? []);
  return used.length === 0 ? {} : { gpuMemoryMiB: used.reduce((sum, mib) => sum + mib, 0) };
}

async function read(
  readMemory: StudyRun["readMemory"],
  target: BenchTarget,
): Promise<MemoryReading> {
  if (target.pids.length > 0) return { residentMiB: residentMiB(target.pids) };
  const memory = (await readMemory?.(target.service)) ?? {};
  const residentByItself = memory.residentMiB ?? (await residentByMetrics(target.metrics));
  return { ...memory, residentMiB: residentByItself };
}

/** Of servers that say so themselves: the embed server does, Triton does not. */
async function residentByMetrics(metrics: BenchTarget["metrics"]): Promise<number | undefined> {
  const http = openHttpClient(2);
  try {
    const bytes = await Promise.all(
      metrics.map(async (source) =>
        metricSum(
          await readMetrics(http, source, { timeoutMs: metricsTimeoutMs }),
          "process_resident_memory_bytes",
        ),
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
