import { setTimeout as sleep } from "node:timers/promises";
import type { LoadPoint } from "../record/bench-record.ts";
import { mean } from "../stats/statistics.ts";
import type { HttpClient } from "./http-client.ts";
import { type MetricsSource, readMetrics } from "./instance-metrics.ts";
import type { Metrics } from "./prometheus.ts";

type GpuUse = NonNullable<LoadPoint["gpu"]>;

/** What a GPU said at one moment. */
export interface GpuReading {
  /** UUID, or index where that is what its source gives. */
  readonly id: string;
  /** 0..1 */
  readonly utilization?: number;
  readonly memoryUsedMiB?: number;
  readonly memoryTotalMiB?: number;
}

const bytesPerMiB = 1024 * 1024;

/** The GPUs on Triton's metrics page; none where it sees none. */
export function gpusOfTriton(metrics: Metrics): readonly GpuReading[] {
  const value = (name: string, id: string) =>
    metrics.find((line) => line.name === name && line.labels.gpu_uuid === id)?.value;
  const mib = (bytes: number | undefined) =>
    bytes === undefined ? undefined : Math.round(bytes / bytesPerMiB);
  const ids = new Set(
    metrics.flatMap(({ name, labels }) =>
      /^nv_gpu_(utilization|memory_(used|total)_bytes)$/.test(name) && labels.gpu_uuid !== undefined
        ? [labels.gpu_uuid]
        : [],
    ),
  );
  return [...ids].map((id) => ({
    id,
    utilization: value("nv_gpu_utilization", id),
    memoryUsedMiB: mib(value("nv_gpu_memory_used_bytes", id)),
    memoryTotalMiB: mib(value("nv_gpu_memory_total_bytes", id)),
  }));
}

/** Arguments of `nvidia-smi` that {@link parseGpuUse} reads. */
export const gpuUseArgs = [
  "--query-gpu=uuid,utilization.gpu,memory.used,memory.total",
  "--format=csv,noheader,nounits",
] as const;

/** Of `nvidia-smi`: `GPU-8a56a4bc-…, 97, 2866, 16376`; `[N/A]` where a GPU does not say. */
export function parseGpuUse(text: string): readonly GpuReading[] {
  return text.split("\n").flatMap((line) => {
    const [id = "", ...cells] = line.split(",").map((cell) => cell.trim());
    if (!/^(GPU|MIG)-/.test(id)) return [];
    const [utilization, used, total] = cells.map((cell) =>
      /^\d+(\.\d+)?$/.test(cell) ? Number(cell) : undefined,
    );
    return [
      {
        id,
        utilization: utilization === undefined ? undefined : utilization / 100,
        memoryUsedMiB: used,
        memoryTotalMiB: total,
      },
    ];
  });
}

/** Mean utilisation and highest memory of some readings; nothing of none. */
export function summarizeGpus(
  source: GpuUse["source"],
  readings: readonly (readonly GpuReading[])[],
): GpuUse | undefined {
  const ids = [...new Set(readings.flatMap((gpus) => gpus.map(({ id }) => id)))];
  if (ids.length === 0) return undefined;
  const gpus = ids.map((id) => {
    const own = readings.flatMap((all) => all.filter((gpu) => gpu.id === id));
    const known = (key: Exclude<keyof GpuReading, "id">) =>
      own.flatMap((gpu) => gpu[key] ?? ([] as number[]));
    const largest = (values: readonly number[]) =>
      values.length === 0 ? undefined : Math.max(...values);
    const utilization = known("utilization");
    return {
      id,
      utilization: utilization.length === 0 ? undefined : mean(utilization),
      memoryUsedMiB: largest(known("memoryUsedMiB")),
      memoryTotalMiB: largest(known("memoryTotalMiB")),
    };
  });
  return { source, gpus };
}

/** Reads GPUs while a load goes on. */
export interface GpuSampler {
  /** Stop, and sum up the readings between two moments of `performance.now()`. */
  stop(fromMs: number, toMs: number): Promise<GpuUse | undefined>;
}

const intervalMs = 1_000;

/**
 * Start reading GPUs, once a second: from the metrics of the Tritons where they have any, else with `readGpus`. Where
 * neither knows a GPU, nothing more is asked.
 */
export function startGpuSampler(
  http: HttpClient,
  sources: readonly MetricsSource[],
  readGpus: (() => Promise<readonly GpuReading[]>) | undefined,
): GpuSampler {
  const tritons = sources.filter(({ role, url }) => role === "triton" && url !== undefined);
  const samples: { readonly atMs: number; readonly gpus: readonly GpuReading[] }[] = [];
  let source: GpuUse["source"] = "triton metrics";
  const ofTritons = async (): Promise<readonly GpuReading[]> =>
    // several Tritons of one host see the same GPUs: the last one counts
    [
      ...new Map(
        (await Promise.all(tritons.map(async (it) => gpusOfTriton(await readMetrics(http, it)))))
          .flat()
          .map((gpu) => [gpu.id, gpu] as const),
      ).values(),
    ];
  const read = async (): Promise<readonly GpuReading[]> => {
    if (source === "triton metrics") {
      const gpus = await ofTritons().catch(() => []);
      if (gpus.length > 0 || samples.length > 0) return gpus;
      source = "nvidia-smi";
    }
    return (await readGpus?.().catch(() => [])) ?? [];
  };

  const ended = new AbortController();
  const work = (async () => {
    while (!ended.signal.aborted) {
      const nextMs = performance.now() + intervalMs;
      const gpus = await read();
      if (gpus.length > 0) samples.push({ atMs: performance.now(), gpus });
      else if (samples.length === 0) return;
      const restMs = Math.max(0, nextMs - performance.now());
      await sleep(restMs, undefined, { signal: ended.signal }).catch(() => {});
    }
  })();
  return {
    async stop(fromMs, toMs) {
      ended.abort();
      await work;
      const inside = samples.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs);
      return summarizeGpus(
        source,
        inside.map(({ gpus }) => gpus),
      );
    },
  };
}
