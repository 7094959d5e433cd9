import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { freePorts } from "../../artefact/free-ports.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import { modelInfo } from "../../model-tools/files/model-info.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import { readMetrics } from "../../target/readings/instance-metrics.ts";
import { residentMB } from "../../target/readings/process-stat.ts";
import { type Metrics, metricSum } from "../../target/readings/prometheus.ts";
import { embedBy } from "../../target/requests/embed-requests.ts";
import { openHttpClient } from "../../target/requests/http-client.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import { cosine, median } from "../../target/stats/statistics.ts";
import { runCommand, type Service, withService } from "../load/run-process.ts";
import {
  baselineFacts,
  type Comparison,
  chosenBy,
  compiledServer,
  type ImageKind,
  imagesOf,
  type Prepared,
  prepareBaseline,
} from "../rounds/comparison.ts";
import { othersShare, ownGroup, readCpu } from "../rounds/cpu-use.ts";
import {
  baselineProcess,
  latencyOf,
  measureService,
  runLine,
  serverProcess,
  type Window,
  windowOptions,
} from "../rounds/service.ts";
import {
  ceilingBatchSizes,
  type ServerLoad,
  type ServerRun,
  serverFigures,
  serverLoads,
  towerLoad,
  towerLoadNames,
} from "./loads.ts";
import { type BenchModel, benchModels, benchTowers } from "./models.ts";
import { textRequests } from "./texts.ts";

/** Warm-up before each measurement, in seconds: compiles code and opens connections. */
const warmupSeconds = 2;

/** Settings of the baseline: one process with the defaults of ONNX Runtime; without spinning, single images took longer. */
const baselineSettings = { WORKERS: "1", ALLOW_SPINNING: "1" } as const;

export const serverComparison: Comparison<ServerRun, ServerLoad> = {
  name: "server",
  description:
    "measure the embed server compared with ONNX Runtime alone (ceiling) and a FastAPI service (baseline)",
  loadNames: serverLoads.map(({ id }) => id),
  rounds: 3,
  quick: ["tiny"],
  line: runLine,
  async prepare(options, signal): Promise<Prepared<ServerRun, ServerLoad>> {
    const { only, onProgress, seconds } = options;
    const towers = options.model.flatMap(benchTowers);
    const loads = chooseLoads(only, towers);
    const models = await benchModels(loads, towers, onProgress);
    const baseline =
      towers.length > 0
        ? { reason: "it serves the default model only" }
        : await prepareBaseline("fastapi-baseline", "lab/fastapi", options, signal);
    onProgress("generating the images");
    const images = await imagesOf(loads.flatMap(({ items }) => (items === "texts" ? [] : [items])));
    const bench: Bench = {
      serverCommand: [process.execPath, await compiledServer(onProgress)],
      models,
      python: baseline.python,
      ...{ images, warmupSeconds, seconds, signal },
    };
    /** Embeddings of the images, which are compared at the end, because the order of the subjects changes between rounds. */
    const embeddings = new Map<string, readonly Float32Array[]>();
    const keyOf = (load: ServerLoad, subject: string) => `${load.model} ${load.items} ${subject}`;
    return {
      loads,
      excluded: baseline.python === undefined ? ["baseline"] : [],
      groups: serverFigures(loads),
      measure: async (load, subject, round) => {
        if (subject === "ceiling") return await measureCeiling(bench, load, round);
        const { run, vectors } = await measureServer(bench, load, subject, round);
        embeddings.set(keyOf(load, subject), vectors);
        return run;
      },
      complete: (runs) =>
        runs.map((run) => {
          const load = loads.find(({ id }) => id === run.load)!;
          const own = embeddings.get(keyOf(load, run.subject)) ?? [];
          const server = embeddings.get(keyOf(load, "server"));
          if (own.length === 0 || own.length !== server?.length) return run;
          const similarities = own.map((vector, index) => cosine(vector, server[index]!));
          return { ...run, cosineToServer: Math.min(...similarities) };
        }),
      subject: {
        versions: versionsOf(),
        models: await modelFacts(models),
        ceiling: { sessionOptions: sessionOptions() },
        baseline: { ...baselineFacts(baseline), settings: baselineSettings },
        images: [...images].map(([kind, files]) => ({
          kind,
          bytes: files.map((file) => file.length),
        })),
        warmupSeconds,
      },
    };
  },
};

/** Loads of `--only`, of the towers or of the default model. */
export function chooseLoads(
  only: readonly string[],
  towers: ReturnType<typeof benchTowers>,
): readonly ServerLoad[] {
  if (towers.length === 0) {
    const isChosen = chosenBy(only, serverComparison.loadNames);
    return serverLoads.filter(({ id }) => isChosen(id));
  }
  const isChosen = chosenBy(only, towerLoadNames);
  return towers.flatMap((tower) =>
    towerLoadNames.filter(isChosen).map((kind) => towerLoad(tower, kind)),
  );
}

/** Commands, models and requests of the measurements. */
interface Bench extends Window {
  /** Command that starts the embed server. */
  readonly serverCommand: readonly string[];
  /** By `ServerLoad.model`. */
  readonly models: Readonly<Record<string, BenchModel>>;
  /** Python of the baseline; `undefined` if it is not measured. */
  readonly python?: string;
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
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

async function measureCeiling(bench: Bench, load: ServerLoad, round: number): Promise<ServerRun> {
  const job = {
    modelPath: bench.models[load.model]!.ceiling,
    sessionOptions: sessionOptions(),
    batchSizes: ceilingBatchSizes(load),
    seconds: bench.seconds,
  };
  const before = readCpu();
  const { createMs, readyMs, rows } = await runCommand<CeilingResult>(
    {
      command: [process.execPath, join(packageFolder, "inference/session/raw-session.mjs")],
      args: [JSON.stringify(job)],
      // disables telemetry, as the server does
      env: { ORT_DISABLE_TELEMETRY: "1" },
    },
    "ceiling",
    bench.signal,
  );
  const after = readCpu();
  const batchSizes = rows.map(({ batchSize, runMs, cpuMs }) => ({
    batchSize,
    imagesPerSecond: (1_000 * batchSize * runMs.length) / runMs.reduce((sum, ms) => sum + ms, 0),
    cpuMsPerImage: cpuMs / (batchSize * runMs.length),
    p50Ms: median(runMs) ?? Number.NaN,
  }));
  const best = batchSizes.reduce((a, b) => (b.imagesPerSecond > a.imagesPerSecond ? b : a));
  return {
    ...{ load: load.id, subject: "ceiling", round, readyMs, createMs, batchSizes, failures: {} },
    imagesPerSecond: best.imagesPerSecond,
    cpuMsPerImage: best.cpuMsPerImage,
    othersShare: before && after && othersShare(before, after, [ownGroup()]),
  };
}

/** Measures one subject under one load, in a new process. */
async function measureServer(bench: Bench, load: ServerLoad, subject: string, round: number) {
  const port = (await freePorts(1))[0]!;
  const { settings, standard } = bench.models[load.model]!;
  const isBaseline = subject === "baseline";
  const program = isBaseline
    ? baselineProcess([bench.python!], port, { ...baselineSettings, MODEL_PATH: standard })
    : serverProcess(bench.serverCommand, port, {
        ...settings,
        ...(subject === "server-int8" && { MODEL_PRECISION: "int8" }),
      });
  const url = `http://127.0.0.1:${port}`;
  const readyPath = isBaseline ? embedPaths.healthz : embedPaths.readyz;
  return await withService(program, { name: subject, url, readyPath }, bench.signal, (service) =>
    measureRunning(bench, load, { load: load.id, subject, round }, service),
  );
}

async function measureRunning(
  bench: Bench,
  load: ServerLoad,
  id: Pick<ServerRun, "load" | "subject" | "round">,
  { child, url, readyMs }: Service,
) {
  const resident = residentMB(child.pid);
  const http = openHttpClient();
  const source = { name: id.subject, role: "embed", url } as const;
  try {
    const vectors: Float32Array[] = [];
    // compared with those of other servers, which the towers do not have
    const compared = load.subjects.includes("baseline")
      ? bench.images.get(load.items as ImageKind)
      : [];
    for (const bytes of compared ?? []) {
      bench.signal.throwIfAborted();
      // each in its own request, because all of them exceed the server's body limit
      const image = { bytes, contentType: "image/jpeg" };
      vectors.push(...(await embedBy(http, url, "base64", [image], defaultModel)));
    }
    const [{ counters, meanMs, ...figures }, health] = await Promise.all([
      measureService(
        requestsOf(bench, load, url),
        load.concurrency,
        bench,
        child.pid,
        [],
        async () => (id.subject === "baseline" ? undefined : await readMetrics(http, source)),
      ),
      load.healthChecks &&
        measureLoad(healthRequests(url), { ...windowOptions(bench), load: healthLoad }),
    ]);
    const run: ServerRun = {
      ...id,
      ...figures,
      failures: { ...figures.failures, ...health?.errorsWithWarmup },
      readyMs,
      residentMB: resident,
      residentAfterMB: residentMB(child.pid),
      outsideMs: outsideMs(meanMs, counters.before, counters.after),
      health: health && latencyOf(health),
    };
    return { run, vectors };
  } finally {
    http.close();
  }
}

function requestsOf(bench: Bench, load: ServerLoad, url: string): PreparedRequests {
  const { items, itemsPerRequest } = load;
  const images = items === "texts" ? [] : bench.images.get(items)!;
  const bodies = images.map((_, first) => {
    const batch = Array.from(
      { length: itemsPerRequest },
      (_unused, i) => images[(first + i) % images.length]!,
    );
    return { images: batch.map((image) => image.toString("base64")) };
  });
  return {
    transport: "http",
    url,
    path: items === "texts" ? embedPaths.embedText : embedPaths.embedBase64,
    headers: { "content-type": "application/json" },
    requests: (items === "texts" ? textRequests : bodies).map((body) => ({
      headers: {},
      body: Buffer.from(JSON.stringify(body)),
    })),
    imagesPerRequest: itemsPerRequest,
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

/** Mean request time beyond decoding and inference: client latency minus the means of the server's histograms. Texts have no decoding. */
function outsideMs(
  meanLatencyMs: number | undefined,
  before: Metrics | undefined,
  after: Metrics | undefined,
): number | undefined {
  if (meanLatencyMs === undefined || before === undefined || after === undefined) return undefined;
  const meanMs = (name: string) => {
    const change = (suffix: string) =>
      (metricSum(after, `${name}${suffix}`) ?? 0) - (metricSum(before, `${name}${suffix}`) ?? 0);
    const count = change("_count");
    return count === 0 ? 0 : (1_000 * change("_sum")) / count;
  };
  return meanLatencyMs - meanMs(embedMetrics.decodeSeconds) - meanMs(embedMetrics.inferSeconds);
}

/** Files of the models, and the agreement of the optimised ones with the original. */
async function modelFacts(models: Readonly<Record<string, BenchModel>>) {
  const facts: Record<string, unknown> = {};
  for (const [name, { standard, ceiling, optimised }] of Object.entries(models)) {
    const { sha256, bytes, weights, source } = await modelInfo(standard);
    const files = optimised.map(({ modelPath: _, ...agreement }) => agreement);
    facts[name] = {
      ...{ file: basename(standard), sha256, bytes, weights, source },
      ceiling: basename(ceiling),
      optimised: files,
    };
  }
  return facts;
}

/** Versions of the server's packages. */
function versionsOf(): Record<string, string> {
  const require = createRequire(join(packageFolder, "inference-image/package.json"));
  const installed = (name: string): string => {
    for (const folder of require.resolve.paths(name) ?? []) {
      try {
        return JSON.parse(readFileSync(join(folder, name, "package.json"), "utf8")).version;
      } catch {
        // not in this folder
      }
    }
    return "unknown";
  };
  const packages = ["onnxruntime-node", "sharp", "fastify"];
  return Object.fromEntries(packages.map((name) => [name, installed(name)]));
}
