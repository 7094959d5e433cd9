import { setTimeout as sleep } from "node:timers/promises";
import type { HttpClient } from "../requests/http-client.ts";
import type { MetricsSource } from "../requests/target-endpoint.ts";
import { mean } from "../stats/statistics.ts";
import {
  type GpuReadingKind,
  type GpuReadingName,
  type GpuUse,
  gpuReadingNames,
  gpuReadings,
} from "./gpu-readings.ts";
import { readMetrics } from "./instance-metrics.ts";
import type { Metrics } from "./prometheus.ts";

/** Readings of one GPU at one moment. Readings that were not reported are absent. */
export type GpuReading = { readonly id: string } & {
  readonly [Name in GpuReadingName]?: number;
};

const readingsOf = (
  id: string,
  value: (kind: GpuReadingKind, index: number) => number | undefined,
): GpuReading => ({
  id,
  ...Object.fromEntries(gpuReadingNames.map((name, i) => [name, value(gpuReadings[name], i)])),
});

function inUnit(value: number | undefined, unit: number, whole: boolean): number | undefined {
  if (value === undefined) return undefined;
  return whole ? Math.round(value / unit) : value / unit;
}

/** Readings on Triton's metrics page; empty if Triton sees no GPU. */
export function gpusOfTriton(metrics: Metrics): readonly GpuReading[] {
  const names = new Set(gpuReadingNames.flatMap((name) => gpuReadings[name].triton?.[0] ?? []));
  const ids = new Set(
    metrics.flatMap(({ name, labels }) =>
      names.has(name) && labels.gpu_uuid !== undefined ? [labels.gpu_uuid] : [],
    ),
  );
  return [...ids].map((id) =>
    readingsOf(id, ({ triton, whole }) => {
      if (triton === undefined) return undefined;
      const [metric, unit] = triton;
      const line = metrics.find(({ name, labels }) => name === metric && labels.gpu_uuid === id);
      return inUnit(line?.value, unit, whole);
    }),
  );
}

/** Arguments of `nvidia-smi` whose output {@link parseGpuUse} parses. */
export const gpuUseArgs = [
  `--query-gpu=uuid,${gpuReadingNames.map((name) => gpuReadings[name].nvidiaSmi[0]).join(",")}`,
  "--format=csv,noheader,nounits",
] as const;

/** Arguments for drivers before 535, which know one column by another name and reject the query otherwise. */
export const olderGpuUseArgs = [
  gpuUseArgs[0].replace("clocks_event_reasons.", "clocks_throttle_reasons."),
  gpuUseArgs[1],
] as const;

/**
 * Parses `nvidia-smi` output: `GPU-8a56a4bc-…, 97, 2866, 16376, 214.35, …, 0x0000000000000004`; `[N/A]` if a GPU does not report a
 * value.
 */
export function parseGpuUse(text: string): readonly GpuReading[] {
  return text.split("\n").flatMap((line) => {
    const [id = "", ...columns] = line.split(",").map((column) => column.trim());
    if (!/^(GPU|MIG)-/.test(id)) return [];
    const value = (index: number) => {
      const column = columns[index] ?? "";
      return /^(\d+(\.\d+)?|0x[0-9a-f]+)$/i.test(column) ? Number(column) : undefined;
    };
    return [
      readingsOf(id, ({ nvidiaSmi: [, unit], whole }, index) => inUnit(value(index), unit, whole)),
    ];
  });
}

const isComplete = (gpu: GpuReading) => gpuReadingNames.every((name) => gpu[name] !== undefined);

/** Adds the readings that a GPU lacks from another source's readings of the same GPU. */
function completed(gpu: GpuReading, others: readonly GpuReading[]): GpuReading {
  const other = others.find(({ id }) => id === gpu.id);
  const values = gpuReadingNames.map((name) => [name, gpu[name] ?? other?.[name]]);
  return { id: gpu.id, ...Object.fromEntries(values) };
}

/** Combines readings per GPU; absent without readings. */
export function summarizeGpus(
  source: GpuUse["source"],
  readings: readonly (readonly GpuReading[])[],
): GpuUse | undefined {
  const ids = [...new Set(readings.flatMap((gpus) => gpus.map(({ id }) => id)))];
  if (ids.length === 0) return undefined;
  const gpus = ids.map((id) => {
    const own = readings.flatMap((all) => all.filter((gpu) => gpu.id === id));
    const combined = gpuReadingNames.map((name) => {
      const values = own.flatMap((gpu) => gpu[name] ?? []);
      if (values.length === 0) return [name, undefined] as const;
      return [name, combine(values, gpuReadings[name])] as const;
    });
    return { id, ...Object.fromEntries(combined) };
  });
  return { source, gpus };
}

function combine(values: readonly number[], { combine: by, whole }: GpuReadingKind): number {
  if (by === "or") return values.reduce((mask, value) => mask | value, 0);
  if (by === "max") return Math.max(...values);
  return whole ? Math.round(mean(values)) : mean(values);
}

/** Reads GPU metrics during a load. */
export interface GpuSampler {
  /** Stops and summarises the readings between two times of `performance.now()`. */
  stop(fromMs: number, toMs: number): Promise<GpuUse | undefined>;
}

const intervalMs = 1_000;

/**
 * Starts reading GPUs once per second: from Triton's metrics, completed with `readGpus`, or with `readGpus` alone if the
 * metrics report no GPU. Stops if neither reports a GPU.
 *
 * @param readGpus - Runs `nvidia-smi`; called only while it adds readings, because it starts a process on the measured host.
 */
export function startGpuSampler(
  http: HttpClient,
  sources: readonly MetricsSource[],
  readGpus: (() => Promise<readonly GpuReading[]>) | undefined,
): GpuSampler {
  const tritons = sources.filter(({ role, url }) => role === "triton" && url !== undefined);
  const samples: { readonly atMs: number; readonly gpus: readonly GpuReading[] }[] = [];
  let source: GpuUse["source"] = "triton metrics";
  const readTritons = async (): Promise<readonly GpuReading[]> =>
    // several Triton servers on one host report the same GPUs; the last reading is used
    [
      ...new Map(
        (await Promise.all(tritons.map(async (it) => gpusOfTriton(await readMetrics(http, it)))))
          .flat()
          .map((gpu) => [gpu.id, gpu] as const),
      ).values(),
    ];
  const readHost = async () => (await readGpus?.().catch(() => [])) ?? [];
  let hostAddsReadings = true;
  const read = async (): Promise<readonly GpuReading[]> => {
    if (source === "nvidia-smi") return readHost();
    const gpus = await readTritons().catch(() => []);
    if (gpus.length === 0 && samples.length === 0) {
      source = "nvidia-smi";
      return readHost();
    }
    if (!hostAddsReadings || gpus.every(isComplete)) return gpus;
    const others = await readHost();
    const all = gpus.map((gpu) => completed(gpu, others));
    hostAddsReadings = all.some((gpu, i) =>
      gpuReadingNames.some((name) => gpu[name] !== gpus[i]?.[name]),
    );
    return all;
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
