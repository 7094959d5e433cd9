import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Child, type ChildOptions, startChild } from "../../artefact/child-process.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { withLifeline } from "../../artefact/simulation.ts";
import { runProgram } from "../../cli/shared/run-program.ts";
import { embedPaths } from "../../contract/embed-api.ts";
import { defaultModel, defaultModels } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { runCommand, withService } from "../load/run-process.ts";
import {
  baselineFacts,
  type Comparison,
  chosenBy,
  compiledServer,
  type ImageKind,
  imagesOf,
  prepareBaseline,
} from "../rounds/comparison.ts";
import { othersShare, ownGroup, readCpu } from "../rounds/cpu-use.ts";
import {
  baselineProcess,
  measureService,
  runLine,
  type ServiceRun,
  serverProcess,
  type Window,
} from "../rounds/service.ts";
import { type GatewayLoad, gatewayFigures, gatewayLoads, gateways } from "./loads.ts";

const loadNames = gatewayLoads.map(({ id }) => id);

/** Warm-up before each measurement, in seconds: compiles code and opens connections. */
const warmupSeconds = 4;

export const gatewayComparison: Comparison<ServiceRun, GatewayLoad> = {
  name: "gateway",
  description:
    "measure the embed server in front of a Triton server that computes nothing: processor time per image, compared with FastAPI, Pillow and tritonclient (baseline) and with libjpeg-turbo alone (ceiling)",
  loadNames,
  rounds: 5,
  quick: ["thumbnails"],
  line: runLine,
  async prepare(options, signal) {
    const { only, onProgress, seconds } = options;
    const isChosen = chosenBy(only, loadNames);
    const loads = gatewayLoads.filter(({ id }) => isChosen(id));
    const baseline = await prepareBaseline(
      "fastapi-triton-baseline",
      "lab/fastapi-triton",
      options,
      signal,
    );
    onProgress("generating the images");
    const images = await imagesOf(loads.map((load) => load.images));
    const pinned = await canPin();
    const bench: GatewayBench = {
      serverCommand: [process.execPath, await compiledServer(onProgress)],
      python: baseline.python,
      ...{ images, pinned, warmupSeconds, seconds, signal },
    };
    return {
      loads,
      excluded: [
        ...(baseline.python === undefined ? ["baseline", "ceiling"] : []),
        ...(pinned ? [] : ["gateway-uint8-2-cores"]),
      ],
      measure: (load, subject, round) => measureGateway(bench, load, subject, round),
      groups: gatewayFigures(loads),
      subject: {
        model: defaultModel.name,
        baseline: baselineFacts(baseline),
        pinned,
        images: [...images].map(([kind, files]) => ({
          kind,
          bytes: files.map((file) => file.length),
        })),
        warmupSeconds,
      },
    };
  },
};

/** Commands and images of the measurements. */
interface GatewayBench extends Window {
  /** Command that starts the embed server. */
  readonly serverCommand: readonly string[];
  /** Python of the baseline and the ceiling; `undefined` if neither is measured. */
  readonly python?: string;
  readonly images: ReadonlyMap<ImageKind, readonly Buffer[]>;
  /** Whether subjects are bound to cores with `taskset`. */
  readonly pinned: boolean;
}

/** Returns whether subjects and their Triton server can be bound to different cores. */
async function canPin(): Promise<boolean> {
  if (availableParallelism() < 2) return false;
  const result = await runProgram("taskset", ["--cpu-list", "0,1", "true"], { timeoutMs: 5_000 });
  return result.outcome !== "missing" && result.exitCode === 0;
}

const pythonFolder = fileURLToPath(new URL("../fastapi-triton/", import.meta.url));
const nullTriton = fileURLToPath(new URL("../load/null-triton-main.ts", import.meta.url));
const tsx = [process.execPath, "--import", import.meta.resolve("tsx")];

/** Core of the Triton server, which no subject on one core uses. */
const tritonCore = "1";

/** Measures a subject under a load in new processes. */
async function measureGateway(
  bench: GatewayBench,
  load: GatewayLoad,
  subject: string,
  round: number,
): Promise<ServiceRun> {
  const run = { load: load.id, subject, round };
  if (subject === "ceiling") return { ...run, ...(await measureCeiling(bench, load)) };
  const triton = startChild({
    command: pinnedTo(bench, tritonCore, withLifeline([...tsx, nullTriton])),
    args: [],
    env: {},
  });
  try {
    const target = await firstLine(triton, bench.signal);
    const port = (await freePorts(1))[0]!;
    const readyPath = subject === "baseline" ? embedPaths.healthz : embedPaths.readyz;
    const service = { name: subject, url: `http://127.0.0.1:${port}`, readyPath };
    const process = processOf(bench, subject, target, port);
    return await withService(process, service, bench.signal, async ({ child, url }) => {
      const requests = {
        transport: "http",
        url,
        path: embedPaths.embed,
        headers: { "content-type": "image/jpeg" },
        requests: bench.images.get(load.images)!.map((body) => ({ headers: {}, body })),
        imagesPerRequest: 1,
      } as const;
      const {
        counters: _,
        meanMs: _mean,
        ...figures
      } = await measureService(
        requests,
        load.concurrency,
        bench,
        child.pid,
        [triton.pid],
        async () => undefined,
      );
      if (figures.cpuMsPerImage === undefined) {
        const failures = Object.keys(figures.failures).join(", ") || "no /proc";
        throw new UserError(`${load.id}: nothing could be measured: ${failures}`);
      }
      return { ...run, ...figures };
    });
  } finally {
    await triton.stop(1);
  }
}

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
      throw new UserError(
        `the Triton server of the benchmark did not start: ${line ?? "no output"}`,
      );
    }
    await sleep(20, undefined, { signal });
  }
}

function processOf(
  bench: GatewayBench,
  subject: string,
  target: string,
  port: number,
): ChildOptions {
  const settings = gateways[subject];
  if (settings === undefined) {
    return baselineProcess(pinnedTo(bench, "0", [bench.python!]), port, {
      APP_DIR: pythonFolder,
      TRITON_GRPC_URL: target,
      MODEL: tritonModelName(defaultModel, "u8"),
    });
  }
  const { command, ...server } = serverProcess(bench.serverCommand, port, {
    BACKEND: "triton",
    ...modelSettings(defaultModels),
    TRITON_GRPC_URLS: target,
    TRITON_MODEL_KIND: settings.triton,
    PREPROCESSING: settings.preprocessing,
  });
  return { ...server, command: pinnedTo(bench, settings.cores === 1 ? "0" : "0,1", command) };
}

interface CeilingResult {
  readonly images: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
}

async function measureCeiling(bench: GatewayBench, load: GatewayLoad) {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-bench-gateway-"));
  try {
    for (const [index, bytes] of bench.images.get(load.images)!.entries()) {
      writeFileSync(join(folder, `${String(index).padStart(2, "0")}.jpg`), bytes);
    }
    const before = readCpu();
    const command = pinnedTo(bench, "0", [bench.python!]);
    const args = [join(pythonFolder, "ceiling.py"), folder, String(bench.seconds)];
    const { images, seconds, cpuSeconds } = await runCommand<CeilingResult>(
      { command, args, env: {} },
      "ceiling",
      bench.signal,
    );
    const after = readCpu();
    return {
      cpuMsPerImage: (1_000 * cpuSeconds) / images,
      imagesPerSecond: images / seconds,
      failures: {},
      othersShare: before && after && othersShare(before, after, [ownGroup()]),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
