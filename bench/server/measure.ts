import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import {
  embedMetrics,
  embedPaths,
  embedResponse,
} from "../../inference-image/src/contract/embed-api.ts";
import type { ServerEnvName } from "../../inference-image/src/contract/server-env.ts";
import { BenchError } from "../src/bench-error.ts";
import { type ChildOptions, endWithParent } from "../src/child-process.ts";
import { freePorts } from "../src/free-ports.ts";
import { type Metrics, metricSum, parseMetrics } from "../src/prometheus.ts";
import { errorsByCode, median, type Sample } from "../src/statistics.ts";
import { summarizeLatency } from "../src/summarize-latency.ts";
import { groupCpuMs, othersShare, ownGroup, readCpu, residentMB } from "./cpu-use.ts";
import type { HealthJob } from "./health-probe.ts";
import type { Answer, LoadJob, LoadResult } from "./load-job.ts";
import { type Load, limitBatchSizes, type SubjectName } from "./loads.ts";
import { peerFolder } from "./peer-environment.ts";
import { answersPerSecond, counted } from "./rates.ts";
import type { BenchRun } from "./record.ts";
import { runCommand, runProgram, type Service, withService } from "./run-process.ts";

/** What the measurements need of this machine. */
export interface Bench {
  /** Starts the embed server: program and arguments. */
  readonly serverCommand: readonly string[];
  /** Starts ONNX Runtime alone; its job is the next argument. */
  readonly limitCommand: readonly string[];
  readonly limitSessionOptions: object;
  readonly models: Readonly<Partial<Record<Load["model"], BenchModel>>>;
  /** `undefined` where the peer is not measured. */
  readonly peer?: { readonly python: string; readonly settings: Readonly<Record<string, string>> };
  /** Files with the bodies of a load's requests. */
  readonly bodies: (load: Load) => readonly string[];
  /** A file with each image of a load's kind once, as one request. */
  readonly eachImage: (load: Load) => Buffer;
  readonly scratch: string;
  readonly warmupSeconds: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

export interface BenchModel {
  /** The standard file, for the server and the peer. */
  readonly standard: string;
  /** What the limit runs: the server's own form. */
  readonly limit: string;
  /** The server's own forms of the file, the one of fp32 first. */
  readonly forms: readonly [BenchForm, ...BenchForm[]];
}

/** A form of a model, and how near its embeddings are to those of the standard file, on synthetic images. */
export interface BenchForm {
  readonly modelPath: string;
  readonly precision: "fp32" | "int8";
  /** What is different from the standard file. */
  readonly parts: string[];
  readonly images: number;
  readonly minCosine: number;
  readonly meanCosine: number;
  readonly maxDifference: number;
}

/** What one run gave, and the embeddings of the load's images. */
export interface Measured {
  readonly run: BenchRun;
  readonly embeddings: readonly (readonly number[])[];
}

/** Measure one subject under one load, in a fresh process. */
export async function measure(
  bench: Bench,
  load: Load,
  subject: SubjectName,
  round: number,
): Promise<Measured> {
  if (subject === "limit") {
    return { run: await measureLimit(bench, load, round), embeddings: [] };
  }
  const port = (await freePorts(1))[0]!;
  const isPeer = subject === "peer";
  const service = isPeer
    ? peerProcess(bench, load, port)
    : serverProcess(bench, load, subject, port);
  const url = `http://127.0.0.1:${port}`;
  const readyPath = isPeer ? embedPaths.healthz : embedPaths.readyz;
  return withService(service, { name: subject, url, readyPath }, bench.signal, (running) =>
    measureService(bench, load, subject, round, running),
  );
}

interface LimitResult {
  readonly createMs: number;
  readonly readyMs: number;
  readonly rows: readonly {
    readonly batchSize: number;
    readonly runMs: readonly number[];
    readonly cpuMs: number;
  }[];
}

async function measureLimit(bench: Bench, load: Load, round: number): Promise<BenchRun> {
  const job = {
    modelPath: modelOf(bench, load).limit,
    sessionOptions: bench.limitSessionOptions,
    batchSizes: limitBatchSizes(load),
    seconds: bench.seconds,
  };
  const before = readCpu();
  const { createMs, readyMs, rows } = await runCommand<LimitResult>(
    { command: bench.limitCommand, args: [JSON.stringify(job)], env: limitEnv },
    "limit",
    bench.signal,
  );
  const after = readCpu();
  const batchSizes = rows.map(({ batchSize, runMs, cpuMs }) => ({
    batchSize,
    runs: runMs.length,
    imagesPerSecond: (1_000 * batchSize * runMs.length) / runMs.reduce((sum, ms) => sum + ms, 0),
    cpuMsPerImage: cpuMs / (batchSize * runMs.length),
  }));
  const best = batchSizes.reduce((a, b) => (b.imagesPerSecond > a.imagesPerSecond ? b : a));
  return {
    load: load.id,
    subject: "limit",
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

/** As the server does: its official build reports model and machine unless this is set. */
const limitEnv = { ORT_DISABLE_TELEMETRY: "1" };

async function measureService(
  bench: Bench,
  load: Load,
  subject: SubjectName,
  round: number,
  { child, url, readyMs }: Service,
): Promise<Measured> {
  const resident = residentMB(child.pid);
  const embeddings = await embedEach(url, bench.eachImage(load), bench.signal);
  const metricsBefore = await readMetrics(url, subject);
  const before = readCpu();
  const [result, health] = await Promise.all([
    generateLoad(bench, load, url),
    load.healthChecks === undefined ? undefined : askHealth(bench, url),
  ]);
  const after = readCpu();
  const metricsAfter = await readMetrics(url, subject);

  const warmupMs = bench.warmupSeconds * 1_000;
  const good = counted(result.answers, warmupMs);
  const rate = answersPerSecond(result.answers, load.concurrency, warmupMs);
  const images = result.answers.length * load.imagesPerRequest;
  const cpuMs = before && after && groupCpuMs(before, after, child.pid);
  const healthSummary = health === undefined ? undefined : summarizeLatency(health);
  return {
    embeddings,
    run: {
      load: load.id,
      subject,
      round,
      imagesPerSecond: rate === undefined ? undefined : rate * load.imagesPerRequest,
      latency: summarizeLatency(
        good.map(({ latencyMs }): Sample => ({ ok: true, latencyMs })),
      ) as BenchRun["latency"],
      failures: failuresOf(result),
      cpuMsPerImage: cpuMs === undefined || images === 0 ? undefined : cpuMs / images,
      othersShare: before && after && othersShare(before, after, [child.pid, ownGroup()]),
      generatorCores: result.cpuMs / result.wallMs,
      readyMs,
      residentMB: resident,
      residentAfterMB: residentMB(child.pid),
      added: addedOf(good, metricsBefore, metricsAfter),
      health: healthSummary as BenchRun["health"],
      healthFailures: health === undefined ? undefined : errorsByCode(health),
    },
  };
}

function modelOf(bench: Bench, load: Load): BenchModel {
  const model = bench.models[load.model];
  if (model === undefined) throw new BenchError(`no ${load.model} model for ${load.id}`);
  return model;
}

function serverProcess(bench: Bench, load: Load, subject: SubjectName, port: number): ChildOptions {
  const env: Partial<Record<ServerEnvName, string>> = {
    HOST: "127.0.0.1",
    PORT: String(port),
    MODEL_PATH: modelOf(bench, load).standard,
    LOG_LEVEL: "warn",
    ...(subject === "server-fast" ? { PREPROCESSING: "fast" } : {}),
    ...(subject === "server-int8" ? { MODEL_PRECISION: "int8" } : {}),
  };
  const command = [
    ...bench.serverCommand.slice(0, -1),
    "--import",
    endWithParent,
    ...bench.serverCommand.slice(-1),
  ];
  return { command, args: [], env: { NODE_ENV: "production", ...env } };
}

function peerProcess(bench: Bench, load: Load, port: number): ChildOptions {
  const { python, settings } = bench.peer!;
  return {
    command: [python],
    args: [join(peerFolder, "serve.py")],
    env: {
      ...settings,
      PORT: String(port),
      MODEL_PATH: modelOf(bench, load).standard,
      // pip's folders are the venv's, and the bytecode of app.py does not belong into the checkout
      PYTHONDONTWRITEBYTECODE: "1",
    },
  };
}

/** Each image of the load once: what its embedding is, and the server's first large request. */
async function embedEach(
  url: string,
  body: Buffer,
  signal: AbortSignal,
): Promise<readonly (readonly number[])[]> {
  const answer = await request(`${url}${embedPaths.embedBase64}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
    headersTimeout: 120_000,
    signal,
  });
  const text = await answer.body.text();
  if (answer.statusCode !== 200) {
    throw new BenchError(
      `status ${answer.statusCode} to the images of a load: ${text.slice(0, 200)}`,
    );
  }
  return embedResponse.parse(JSON.parse(text)).embeddings;
}

let jobs = 0;
const resultFile = (bench: Bench, name: string) => join(bench.scratch, `${name}-${jobs++}.json`);

function generateLoad(bench: Bench, load: Load, url: string): Promise<LoadResult> {
  const job: LoadJob = {
    url,
    path: embedPaths.embedBase64,
    bodies: bench.bodies(load),
    connections: load.concurrency,
    warmupSeconds: bench.warmupSeconds,
    seconds: bench.seconds,
    result: resultFile(bench, "load"),
  };
  return runProgram<LoadResult>("load-generator.ts", job, bench.signal);
}

/** Ask while the load is on: after its warm-up, and not beyond its end. */
async function askHealth(bench: Bench, url: string): Promise<readonly Sample[]> {
  await sleep(bench.warmupSeconds * 1_000, undefined, { signal: bench.signal });
  const job: HealthJob = {
    url: `${url}${embedPaths.healthz}`,
    seconds: bench.seconds,
    result: resultFile(bench, "health"),
  };
  return runProgram<readonly Sample[]>("health-probe.ts", job, bench.signal);
}

function failuresOf({ answers, failures }: LoadResult): BenchRun["failures"] {
  const byCode: Record<string, number> = failures > 0 ? { "no answer": failures } : {};
  for (const { status } of answers) {
    if (status !== 200) byCode[status] = (byCode[status] ?? 0) + 1;
  }
  return byCode;
}

async function readMetrics(url: string, subject: SubjectName): Promise<Metrics | undefined> {
  if (subject === "peer") return undefined;
  const answer = await request(`${url}${embedPaths.metrics}`);
  return parseMetrics(await answer.body.text());
}

/** Names in the server's `Server-Timing` that are preprocessing and compute. */
const workNames = ["decode", "infer"] as const;

/** What requests took beyond their work: the latency that the load generator saw, less what the server says it worked. */
function addedOf(
  answers: readonly Answer[],
  before: Metrics | undefined,
  after: Metrics | undefined,
): BenchRun["added"] {
  const added = answers.flatMap(({ latencyMs, timing }) => {
    const work = workNames.map((name) => timing?.[name]);
    return work.every((ms) => ms !== undefined)
      ? [latencyMs - work.reduce((sum, ms) => sum + ms, 0)]
      : [];
  });
  const ms = median(added);
  if (ms !== undefined) return { ms, from: "Server-Timing" };
  if (before === undefined || after === undefined || answers.length === 0) return undefined;
  const meanMs = (name: string) => {
    const change = (suffix: string) =>
      (metricSum(after, `${name}${suffix}`) ?? 0) - (metricSum(before, `${name}${suffix}`) ?? 0);
    return (1_000 * change("_sum")) / change("_count");
  };
  const latencyMs = answers.reduce((sum, answer) => sum + answer.latencyMs, 0) / answers.length;
  const work = meanMs(embedMetrics.decodeSeconds) + meanMs(embedMetrics.inferSeconds);
  return Number.isFinite(work) ? { ms: latencyMs - work, from: "metrics" } : undefined;
}
