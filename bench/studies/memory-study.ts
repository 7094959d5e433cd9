import type { OpenTarget } from "../../target/open/open-target.ts";
import { readMetrics } from "../../target/readings/instance-metrics.ts";
import { metricSum } from "../../target/readings/prometheus.ts";
import { openHttpClient } from "../../target/requests/http-client.ts";
import type { TargetEndpoint } from "../../target/requests/target-endpoint.ts";
import type { MeasuredEndpoint } from "../measure/choose-endpoints.ts";
import {
  type IdleMemory,
  type MemoryReading,
  measureMemory,
  residentMiB,
  type ServiceMemory,
} from "./memory.ts";
import { clients, type LoadStudy, type StudyRun } from "./study.ts";

const bytesPerMiB = 1024 * 1024;
/** Timeout, because a late response does not describe the time of the request. */
const metricsTimeoutMs = 5_000;
/** Clients with the largest batch, so that buffers reach their full size. */
const loadConcurrency = 4;

const notes = [
  "Idle memory is read before the first request of this run; deployed services may have processed earlier requests.",
  "Memory of a gateway includes the Triton servers behind it if they run on this machine.",
];
const allGpus = "all GPUs, including other processes";

/** Memory of each service when idle and under load. All services run; they are loaded one after another. */
export const memoryStudy: LoadStudy = {
  kind: "load",
  id: "memory",
  readsIdleMemory: true,
  async run(run) {
    if (run.idleMemory !== undefined) await measureServices(run, run.idleMemory);
  },
};

async function measureServices(run: StudyRun, idle: IdleMemory): Promise<void> {
  const memories: ServiceMemory[] = [];
  const { readGpus } = run.open;
  let gpus: ServiceMemory | undefined;
  const batch = Math.max(...run.grid.batchSizes);
  const services = new Map<string, MeasuredEndpoint>();
  for (const measured of run.endpoints) {
    if (!services.has(measured.target.service)) services.set(measured.target.service, measured);
  }
  for (const [service, measured] of services) {
    const load = () => run.measure("memory", measured, { batch, load: clients(loadConcurrency) });
    const loadAndReadGpus = async () => {
      gpus = await measureMemory(allGpus, idle.gpus, () => readAllGpus(readGpus), load);
    };
    const own = idle.services.get(service) ?? {};
    const read = () => readService(run.readMemory, measured.target);
    memories.push(await measureMemory(service, own, read, loadAndReadGpus));
    if (memories.length > 1) continue;
    run.addResult({
      study: "memory",
      environment: run.environment,
      services: memories,
      notes: [...notes],
    });
  }
  if (gpus?.gpuMemoryMiB !== undefined) memories.push(gpus);
}

/** Reads the memory of every service; to be called before the first request. */
export async function readIdleMemory(
  { targets, readGpus }: OpenTarget,
  readMemory: StudyRun["readMemory"],
): Promise<IdleMemory> {
  const services = new Map<string, MemoryReading>();
  for (const target of targets) {
    if (services.has(target.service)) continue;
    services.set(target.service, await readService(readMemory, target));
  }
  return { services, gpus: await readAllGpus(readGpus) };
}

async function readAllGpus(readGpus: StudyRun["open"]["readGpus"]): Promise<MemoryReading> {
  const gpus = (await readGpus?.().catch(() => [])) ?? [];
  const used = gpus.flatMap(({ memoryUsedMiB }) => memoryUsedMiB ?? []);
  return used.length === 0 ? {} : { gpuMemoryMiB: used.reduce((sum, mib) => sum + mib, 0) };
}

async function readService(
  readMemory: StudyRun["readMemory"],
  target: TargetEndpoint,
): Promise<MemoryReading> {
  if (target.pids.length > 0) return { residentMiB: residentMiB(target.pids) };
  const memory = (await readMemory?.(target.service)) ?? {};
  const resident = memory.residentMiB ?? (await residentFromMetrics(target.metrics));
  return { ...memory, residentMiB: resident };
}

/** Resident memory from the servers' own metrics, which the embed server has and Triton lacks. */
async function residentFromMetrics(
  metrics: TargetEndpoint["metrics"],
): Promise<number | undefined> {
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
