import { fileURLToPath } from "node:url";
import type { ChildOptions } from "../../artefact/child-process.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { withLifeline } from "../../artefact/simulation.ts";
import { embedMetrics, embedPaths } from "../../contract/embed-api.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type CpuReading,
  groupCpuMs,
  othersShare,
  ownGroup,
  readCpu,
  residentMB,
} from "../../target/load/cpu-use.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import type { MeasuredLoad, MeasureOptions } from "../../target/load/measured-load.ts";
import { runCommand, type Service, withService } from "../../target/load/run-process.ts";
import { readMetrics } from "../../target/readings/instance-metrics.ts";
import { type Metrics, metricSum } from "../../target/readings/prometheus.ts";
import { embedBy } from "../../target/requests/embed-requests.ts";
import { type HttpClient, openHttpClient } from "../../target/requests/http-client.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { median } from "../../target/stats/statistics.ts";
import { ceilingBatchSizes, type ImageKind, type Load, type SubjectName } from "./loads.ts";
import type { BenchRun } from "./record.ts";

/** Commands, models and requests of the measurements. */
export interface Bench {
  /** Command that starts the embed server. */
  readonly serverCommand: readonly string[];
  /** Command that runs ONNX Runtime alone; its job is appended as an argument. */
  readonly ceilingCommand: readonly string[];
  readonly ceilingSessionOptions: object;
  /** By `Load.model`. */
  readonly models: Readonly<Record<string, BenchModel>>;
  /** `undefined` if the baseline is not measured. */
  readonly baseline?: {
    readonly python: string;
    readonly settings: Readonly<Record<string, string>>;
  };
  readonly bodies: (load: Load) => readonly Buffer[];
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
  readonly warmupSeconds: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

export interface BenchModel {
  /** Settings of the server that serves it. */
  readonly settings: Readonly<Partial<Record<ServerEnvName, string>>>;
  /** Original model file, for the server and the baseline. */
  readonly standard: string;
  /** File that the ceiling runs, as the server does. */
  readonly ceiling: string;
  /** Optimised models derived from it, fp32 first. */
  readonly optimised: readonly OptimisedModel[];
}

/** Optimised model, and the agreement of its embeddings with those of the original. */
export interface OptimisedModel {
  readonly modelPath: string;
  readonly precision: "fp32" | "int8";
  /** Applied optimisations. */
  readonly parts: string[];
  readonly images: number;
  readonly minCosine: number;
  readonly meanCosine: number;
  readonly maxDifference: number;
}

/** Result of one run, and the embeddings of the load's images. */
export interface Measured {
  readonly run: BenchRun;
  readonly embeddings: readonly Float32Array[];
}

/** Measures one subject under one load, in a new process. */
export async function measure(
  bench: Bench,
  load: Load,
  subject: SubjectName,
  round: number,
): Promise<Measured> {
  if (subject === "ceiling") {
    return { run: await measureCeiling(bench, load, round), embeddings: [] };
  }
  const port = (await freePorts(1))[0]!;
  const isBaseline = subject === "baseline";
  const service = isBaseline
    ? baselineProcess(bench, load, port)
    : serverProcess(bench, load, subject, port);
  const url = `http://127.0.0.1:${port}`;
  const readyPath = isBaseline ? embedPaths.healthz : embedPaths.readyz;
  return withService(service, { name: subject, url, readyPath }, bench.signal, (running) =>
    measureService(bench, load, subject, round, running),
  );
}

interface CeilingResult {
  readonly createMs: number;
  readonly readyMs: number;
  readonly rows: readonly {
    readonly batchSize: number;
    readonly runMs: readonly number[];
    readonly cpuMs: number;
  }[];
}

async function measureCeiling(bench: Bench, load: Load, round: number): Promise<BenchRun> {
  const job = {
    modelPath: modelOf(bench, load).ceiling,
    sessionOptions: bench.ceilingSessionOptions,
    batchSizes: ceilingBatchSizes(load),
    seconds: bench.seconds,
  };
  const before = readCpu();
  const { createMs, readyMs, rows } = await runCommand<CeilingResult>(
    { command: bench.ceilingCommand, args: [JSON.stringify(job)], env: ceilingEnv },
    "ceiling",
    bench.signal,
  );
  const after = readCpu();
  const batchSizes = rows.map(({ batchSize, runMs, cpuMs }) => ({
    batchSize,
    runs: runMs.length,
    imagesPerSecond: (1_000 * batchSize * runMs.length) / runMs.reduce((sum, ms) => sum + ms, 0),
    cpuMsPerImage: cpuMs / (batchSize * runMs.length),
    p50Ms: median(runMs),
  }));
  const best = batchSizes.reduce((a, b) => (b.imagesPerSecond > a.imagesPerSecond ? b : a));
  return {
    load: load.id,
    subject: "ceiling",
    round,
    imagesPerSecond: best.imagesPerSecond,
    failures: {},
    cpuMsPerImage: best.cpuMsPerImage,
    othersShare: before && after && othersShare(before, after, [ownGroup()]),
    readyMs,
    createMs,
    batchSizes,
  };
}

/** Disables telemetry, as the server does. */
const ceilingEnv = { ORT_DISABLE_TELEMETRY: "1" };

/** Counters read at the boundaries of the measured window. */
interface Counters {
  readonly cpu: CpuReading | undefined;
  readonly metrics: Metrics | undefined;
}

async function measureService(
  bench: Bench,
  load: Load,
  subject: SubjectName,
  round: number,
  { child, url, readyMs }: Service,
): Promise<Measured> {
  const resident = residentMB(child.pid);
  const http = openHttpClient();
  const source = { name: subject, role: "embed", url } as const;
  const readCounters = async (): Promise<Counters> => ({
    metrics: subject === "baseline" ? undefined : await readMetrics(http, source),
    cpu: readCpu(),
  });
  // compared with those of other servers, which the towers do not have
  const embeddings = load.subjects.includes("baseline")
    ? await embedImages(http, url, bench, load)
    : [];
  const [found, health] = await Promise.all([
    measureLoad(embedRequests(bench, load, url), {
      ...optionsOf(bench),
      load: { kind: "closed loop", concurrency: load.concurrency },
      readCounters,
    }),
    load.healthChecks &&
      measureLoad(healthRequests(url), { ...optionsOf(bench), load: healthLoad }),
  ]).finally(() => http.close());
  bench.signal.throwIfAborted();
  const { before, after } = (found.counters ?? {}) as { before?: Counters; after?: Counters };
  const cpu = before?.cpu && after?.cpu && { before: before.cpu, after: after.cpu };
  const images =
    load.itemsPerRequest * found.windows.reduce((sum, { requests }) => sum + requests, 0);
  return {
    embeddings,
    run: {
      load: load.id,
      subject,
      round,
      imagesPerSecond: found.samples === 0 ? undefined : found.imagesPerSecond,
      latency: latencyOf(found),
      failures: found.errorsWithWarmup,
      cpuMsPerImage:
        cpu && images > 0 ? groupCpuMs(cpu.before, cpu.after, child.pid) / images : undefined,
      othersShare: cpu && othersShare(cpu.before, cpu.after, [child.pid, ownGroup()]),
      generatorCores: found.client.busiestWorkerCores,
      readyMs,
      residentMB: resident,
      residentAfterMB: residentMB(child.pid),
      added: addedOf(found.latencyMs?.mean, before?.metrics, after?.metrics),
      health: health && latencyOf(health),
      healthFailures: health?.errorsWithWarmup,
    },
  };
}

/** Environment variables of inference-image/Dockerfile. */
export const imageEnv = { NODE_ENV: "production", MALLOC_MMAP_THRESHOLD_: String(2 * 1024 * 1024) };

/** One window of fixed length, extended only if there are few responses. */
function optionsOf({ seconds, warmupSeconds, signal }: Bench): Omit<MeasureOptions, "load"> {
  return {
    windowSeconds: seconds,
    warmupSeconds,
    windows: 1,
    durationSeconds: warmupSeconds + seconds + longestSeconds,
    workers: 1,
    signal,
  };
}

/** Extra time for a slow service to reach the number of responses that a rate requires, in seconds. */
const longestSeconds = 60;

function embedRequests(bench: Bench, load: Load, url: string): PreparedRequests {
  return {
    transport: "http",
    url,
    path: load.items === "texts" ? embedPaths.embedText : embedPaths.embedBase64,
    headers: { "content-type": "application/json" },
    requests: bench.bodies(load).map((body) => ({ headers: {}, body })),
    imagesPerRequest: load.itemsPerRequest,
  };
}

/** One request every 20 ms, independent of responses. */
export const healthLoad = {
  kind: "open loop",
  arrivals: "constant",
  ratePerSecond: 50,
  seed: 0,
} as const;

/** Requests to the liveness route. */
export function healthRequests(url: string): PreparedRequests {
  return {
    transport: "http",
    url,
    method: "GET",
    path: embedPaths.healthz,
    headers: {},
    requests: [{ headers: {}, body: new Uint8Array() }],
    imagesPerRequest: 1,
  };
}

function latencyOf({ latencyMs, samples, histogram }: MeasuredLoad): BenchRun["latency"] {
  if (latencyMs === undefined) return undefined;
  const { p50, p95, p99, max, p99Reliable } = latencyMs;
  return { count: samples, p50Ms: p50, p95Ms: p95, p99Ms: p99, maxMs: max, p99Reliable, histogram };
}

function modelOf(bench: Bench, load: Load): BenchModel {
  const model = bench.models[load.model];
  if (model === undefined) throw new UserError(`no ${load.model} model for ${load.id}`);
  return model;
}

function serverProcess(bench: Bench, load: Load, subject: SubjectName, port: number): ChildOptions {
  const env: Partial<Record<ServerEnvName, string>> = {
    HOST: "127.0.0.1",
    PORT: String(port),
    LOG_LEVEL: "warn",
    ...modelOf(bench, load).settings,
    ...(subject === "server-int8" && { MODEL_PRECISION: "int8" }),
  };
  const command = withLifeline(bench.serverCommand);
  return { command, args: [], env: { ...imageEnv, ...env } };
}

function baselineProcess(bench: Bench, load: Load, port: number): ChildOptions {
  const { python, settings } = bench.baseline!;
  return {
    command: [python],
    args: [fileURLToPath(new URL("../fastapi/serve.py", import.meta.url))],
    env: {
      ...settings,
      PORT: String(port),
      MODEL_PATH: modelOf(bench, load).standard,
      // no bytecode files in the checkout
      PYTHONDONTWRITEBYTECODE: "1",
    },
  };
}

/** Embeds each image in its own request, because all of them exceed the server's body limit. */
async function embedImages(
  http: HttpClient,
  url: string,
  { images, signal }: Bench,
  load: Load,
): Promise<readonly Float32Array[]> {
  const embeddings: Float32Array[] = [];
  for (const bytes of images.get(load.items as ImageKind)!) {
    signal.throwIfAborted();
    embeddings.push(
      ...(await embedBy(http, url, "base64", [{ bytes, contentType: "image/jpeg" }], defaultModel)),
    );
  }
  return embeddings;
}

/** Mean request time beyond decoding and inference: client latency minus the means of the server's histograms. Texts have no decoding. */
function addedOf(
  meanLatencyMs: number | undefined,
  before: Metrics | undefined,
  after: Metrics | undefined,
): BenchRun["added"] {
  if (meanLatencyMs === undefined || before === undefined || after === undefined) return undefined;
  const meanMs = (name: string) => {
    const change = (suffix: string) =>
      (metricSum(after, `${name}${suffix}`) ?? 0) - (metricSum(before, `${name}${suffix}`) ?? 0);
    const count = change("_count");
    return count === 0 ? 0 : (1_000 * change("_sum")) / count;
  };
  const work = meanMs(embedMetrics.decodeSeconds) + meanMs(embedMetrics.inferSeconds);
  return Number.isFinite(work) ? { ms: meanLatencyMs - work, from: "metrics" } : undefined;
}
