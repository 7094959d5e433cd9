import { fileURLToPath } from "node:url";
import type { ChildOptions } from "../../artefact/child-process.ts";
import { withLifeline } from "../../artefact/simulation.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import type { MeasuredLoad, MeasureOptions } from "../../target/load/measured-load.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { type CpuReading, groupCpuMs, othersShare, ownGroup, readCpu } from "./cpu-use.ts";
import type { Run } from "./figures.ts";

export interface Latency {
  readonly count: number;
  readonly p50Ms: number;
  readonly p95Ms: number;
  readonly p99Ms: number;
}

/** Figures of a service under a load. */
export interface ServiceRun extends Run {
  /** Images or texts per second between the first and the last response of the measured window. */
  readonly imagesPerSecond?: number;
  readonly latency?: Latency;
  /** CPU time of the subject per image, over all threads. */
  readonly cpuMsPerImage?: number;
}

/** Length and end of the measurements. */
export interface Window {
  readonly warmupSeconds: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

/** Counters at the boundaries of the measured window. */
interface Counters<T> {
  readonly cpu: CpuReading | undefined;
  readonly extra: T;
}

/** Extra time for a slow service to reach the number of responses that a rate requires, in seconds. */
const longestSeconds = 60;

/** One window of fixed length, extended only if there are few responses. */
export function windowOptions({
  seconds,
  warmupSeconds,
  signal,
}: Window): Omit<MeasureOptions, "load"> {
  return {
    windowSeconds: seconds,
    warmupSeconds,
    windows: 1,
    durationSeconds: warmupSeconds + seconds + longestSeconds,
    workers: 1,
    signal,
  };
}

/**
 * Measures a service with a closed loop.
 *
 * @param group - Process group of the service.
 * @param helpers - Other groups of the measurement.
 * @param readCounters - Counters of the service, read with those of the processors.
 */
export async function measureService<T>(
  requests: PreparedRequests,
  concurrency: number,
  window: Window,
  group: number,
  helpers: readonly number[],
  readCounters: () => Promise<T>,
) {
  const found = await measureLoad(requests, {
    ...windowOptions(window),
    load: { kind: "closed loop", concurrency },
    readCounters: async (): Promise<Counters<T>> => ({
      extra: await readCounters(),
      cpu: readCpu(),
    }),
  });
  window.signal.throwIfAborted();
  const { before, after } = (found.counters ?? {}) as {
    readonly before?: Counters<T>;
    readonly after?: Counters<T>;
  };
  const cpu = before?.cpu && after?.cpu && ([before.cpu, after.cpu] as const);
  const sent = found.windows.reduce((sum, each) => sum + each.requests, 0);
  const images = requests.imagesPerRequest * sent;
  return {
    imagesPerSecond: found.samples === 0 ? undefined : found.imagesPerSecond,
    latency: latencyOf(found),
    failures: found.errorsWithWarmup,
    cpuMsPerImage: cpu && images > 0 ? groupCpuMs(...cpu, group) / images : undefined,
    othersShare: cpu && othersShare(...cpu, [group, ...helpers, ownGroup()]),
    meanMs: found.latencyMs?.mean,
    counters: { before: before?.extra, after: after?.extra },
  };
}

export function latencyOf({ latencyMs, samples }: MeasuredLoad): Latency | undefined {
  return (
    latencyMs && {
      count: samples,
      p50Ms: latencyMs.p50,
      p95Ms: latencyMs.p95,
      p99Ms: latencyMs.p99,
    }
  );
}

/** Figures of one run as a line of progress. */
export function runLine({ imagesPerSecond, cpuMsPerImage, latency, failures }: ServiceRun): string {
  return [
    imagesPerSecond === undefined ? "no rate" : `${imagesPerSecond.toFixed(1)} images/s`,
    ...(cpuMsPerImage === undefined ? [] : [`${cpuMsPerImage.toFixed(2)} ms of CPU per image`]),
    ...(latency ? [`p50 ${latency.p50Ms.toFixed(1)} ms, p95 ${latency.p95Ms.toFixed(1)} ms`] : []),
    ...Object.entries(failures).map(([code, count]) => `${count} × ${code}`),
  ].join(", ");
}

/** Environment variables of inference-image/Dockerfile. */
const imageEnv = { NODE_ENV: "production", MALLOC_MMAP_THRESHOLD_: String(2 * 1024 * 1024) };

/** The embed server on a port. */
export function serverProcess(
  command: readonly string[],
  port: number,
  env: Readonly<Partial<Record<ServerEnvName, string>>>,
): ChildOptions {
  const own = { HOST: "127.0.0.1", PORT: String(port), LOG_LEVEL: "warn" };
  return { command: withLifeline(command), args: [], env: { ...imageEnv, ...own, ...env } };
}

/** A FastAPI baseline on a port. */
export function baselineProcess(
  command: readonly string[],
  port: number,
  env: Readonly<Record<string, string>>,
): ChildOptions {
  return {
    command: [...command],
    args: [fileURLToPath(new URL("../fastapi/serve.py", import.meta.url))],
    // no bytecode files in the checkout
    env: { ...env, PORT: String(port), PYTHONDONTWRITEBYTECODE: "1" },
  };
}
