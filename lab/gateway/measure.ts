import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Child, type ChildOptions, startChild } from "../../artefact/child-process.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { withLifeline } from "../../artefact/simulation.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type CpuReading,
  groupCpuMs,
  othersShare,
  ownGroup,
  readCpu,
} from "../../target/load/cpu-use.ts";
import { measureLoad } from "../../target/load/measure-load.ts";
import { runCommand, withService } from "../../target/load/run-process.ts";
import type { PreparedRequests } from "../../target/requests/prepared-requests.ts";
import type { ImageKind } from "../server/loads.ts";
import { imageEnv } from "../server/measure.ts";
import { type GatewayLoad, type GatewaySubject, gatewayVariants } from "./loads.ts";
import type { GatewayRun } from "./record.ts";

/** Commands and images of the measurements. */
export interface GatewayBench {
  /** Command that starts the embed server. */
  readonly serverCommand: readonly string[];
  /** Python of the baseline and the ceiling; `undefined` if neither is measured. */
  readonly python?: string;
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
  /** Whether subjects are bound to cores with `taskset`. */
  readonly pinned: boolean;
  readonly warmupSeconds: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

const pythonFolder = fileURLToPath(new URL("../fastapi-triton/", import.meta.url));
const servePython = fileURLToPath(new URL("../fastapi/serve.py", import.meta.url));
const nullTriton = fileURLToPath(new URL("../load/null-triton-main.ts", import.meta.url));

/** Core of the Triton, which no subject on one core uses. */
const tritonCore = "1";

/** Measures a subject under a load in new processes. */
export async function measureGateway(
  bench: GatewayBench,
  load: GatewayLoad,
  subject: GatewaySubject,
  round: number,
): Promise<GatewayRun> {
  if (subject === "ceiling") return await measureCeiling(bench, load, round);
  const triton = startChild({
    command: pinnedTo(bench, tritonCore, withLifeline([...tsx, nullTriton])),
    args: [],
    env: {},
  });
  try {
    const target = await firstLine(triton, bench.signal);
    const port = (await freePorts(1))[0]!;
    const process = processOf(bench, subject, { target, port });
    const name = { name: subject, url: `http://127.0.0.1:${port}`, readyPath: readyPath(subject) };
    return await withService(process, name, bench.signal, async ({ child, url }) => {
      const measured = await measureService(bench, load, url, child.pid, triton.pid);
      return { load: load.id, subject, round, ...measured };
    });
  } finally {
    await triton.stop(1);
  }
}

const tsx = [process.execPath, "--import", import.meta.resolve("tsx")];

const readyPath = (subject: GatewaySubject) =>
  subject === "baseline" ? embedPaths.healthz : embedPaths.readyz;

function pinnedTo({ pinned }: GatewayBench, cores: string, command: readonly string[]) {
  return pinned ? ["taskset", "--cpu-list", cores, ...command] : command;
}

const startTimeoutMs = 60_000;

async function firstLine(child: Child, signal: AbortSignal): Promise<string> {
  const startedAt = performance.now();
  for (;;) {
    const [line] = child.lastLines(1);
    if (line !== undefined && /^[\d.]+:\d+$/.test(line)) return line;
    if (child.exit !== undefined || performance.now() - startedAt > startTimeoutMs) {
      throw new UserError(`the Triton of the benchmark did not start: ${line ?? "no output"}`);
    }
    await sleep(20, undefined, { signal });
  }
}

function processOf(
  bench: GatewayBench,
  subject: GatewaySubject,
  { target, port }: { readonly target: string; readonly port: number },
): ChildOptions {
  const variant = gatewayVariants[subject];
  if (variant === undefined) {
    return {
      command: pinnedTo(bench, "0", [bench.python!]),
      args: [servePython],
      env: {
        PORT: String(port),
        APP_DIR: pythonFolder,
        TRITON_GRPC_URL: target,
        MODEL: tritonModelName(defaultModel, "u8"),
        // no bytecode files in the checkout
        PYTHONDONTWRITEBYTECODE: "1",
      },
    };
  }
  const env: Partial<Record<ServerEnvName, string>> = {
    HOST: "127.0.0.1",
    PORT: String(port),
    LOG_LEVEL: "warn",
    BACKEND: "triton",
    MODELS: `${defaultModel.name}:image`,
    TRITON_GRPC_URLS: target,
    TRITON_MODEL_KIND: variant.triton,
    PREPROCESSING: variant.preprocessing,
  };
  const cores = variant.cores === 1 ? "0" : "0,1";
  return {
    command: pinnedTo(bench, cores, withLifeline(bench.serverCommand)),
    args: [],
    env: { ...imageEnv, ...env },
  };
}

/** Extra time for a slow subject to reach the number of responses that a rate requires, in seconds. */
const longestSeconds = 60;

async function measureService(
  bench: GatewayBench,
  load: GatewayLoad,
  url: string,
  group: number,
  tritonGroup: number,
): Promise<Omit<GatewayRun, "load" | "subject" | "round">> {
  const { seconds, warmupSeconds, signal } = bench;
  const found = await measureLoad(requestsOf(bench, load, url), {
    load: { kind: "closed loop", concurrency: load.concurrency },
    windowSeconds: seconds,
    warmupSeconds,
    windows: 1,
    durationSeconds: warmupSeconds + seconds + longestSeconds,
    workers: 1,
    signal,
    readCounters: async () => readCpu(),
  });
  signal.throwIfAborted();
  const { before, after } = (found.counters ?? {}) as { before?: CpuReading; after?: CpuReading };
  const images = found.windows.reduce((sum, { requests }) => sum + requests, 0);
  if (before === undefined || after === undefined || images === 0 || !found.latencyMs) {
    const failures = Object.keys(found.errorsWithWarmup).join(", ") || "no /proc";
    throw new UserError(`${load.id}: nothing could be measured: ${failures}`);
  }
  const { p50, p95, p99 } = found.latencyMs;
  return {
    cpuMsPerImage: groupCpuMs(before, after, group) / images,
    imagesPerSecond: found.imagesPerSecond,
    latency: { p50Ms: p50, p95Ms: p95, p99Ms: p99 },
    failures: found.errorsWithWarmup,
    othersShare: othersShare(before, after, [group, tritonGroup, ownGroup()]),
  };
}

function requestsOf({ images }: GatewayBench, load: GatewayLoad, url: string): PreparedRequests {
  return {
    transport: "http",
    url,
    path: embedPaths.embed,
    headers: { "content-type": "image/jpeg" },
    requests: images.get(load.images)!.map((body) => ({ headers: {}, body })),
    imagesPerRequest: 1,
  };
}

interface CeilingResult {
  readonly images: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
}

async function measureCeiling(
  bench: GatewayBench,
  load: GatewayLoad,
  round: number,
): Promise<GatewayRun> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-bench-gateway-"));
  try {
    for (const [index, bytes] of bench.images.get(load.images)!.entries()) {
      writeFileSync(join(folder, `${String(index).padStart(2, "0")}.jpg`), bytes);
    }
    const before = readCpu();
    const { images, seconds, cpuSeconds } = await runCommand<CeilingResult>(
      {
        command: pinnedTo(bench, "0", [bench.python!]),
        args: [join(pythonFolder, "ceiling.py"), folder, String(bench.seconds)],
        env: {},
      },
      "ceiling",
      bench.signal,
    );
    const after = readCpu();
    return {
      load: load.id,
      subject: "ceiling",
      round,
      cpuMsPerImage: (1_000 * cpuSeconds) / images,
      imagesPerSecond: images / seconds,
      failures: {},
      othersShare: before && after && othersShare(before, after, [ownGroup()]),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
