import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join, relative, resolve } from "node:path";
import { readArtefact } from "../../artefact/artefact.ts";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import type { ModelFiles } from "../../artefact/simulation-types.ts";
import type { BenchContext, BenchEvent } from "../../bench/measure/bench-events.ts";
import type { RequestedEndpoint } from "../../bench/measure/choose-endpoints.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { benchRecordText, benchReportName } from "../../bench/record/record-text.ts";
import { benchReport } from "../../bench/report/bench-report.ts";
import { startBenchProgress } from "../../bench/run/bench-progress.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import { finishBenchRecord, newBenchRecord } from "../../bench/run/compose-record.ts";
import type { Device } from "../../bench/stats/roofline.ts";
import { type Environment, hasEmbedApi, type ServiceKind } from "../../contract/environment.ts";
import { gpuSpecOf } from "../../contract/gpus.ts";
import { isLoopback } from "../../contract/loopback.ts";
import { requireTower, towerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { renderText } from "../../report/render/render-text.ts";
import { saveReports } from "../../report/save-reports.ts";
import { isSelected } from "../../target/open/open-services.ts";
import type { ReferenceItem } from "../../target/reference/reference.ts";
import { isStandIn } from "../../target/subject/subject.ts";
import type { TargetSource } from "../../target/target.ts";
import { deployedEnvironments } from "../cluster/deployed-environments.ts";
import { driverVersion, gpuReader } from "../host/gpu-reader.ts";
import { pytorchFor } from "../model/pytorch-baseline.ts";
import { chooseModel, simulationServer } from "../prepare/choose-model.ts";
import {
  environmentFiles,
  filesWithHelm,
  outputFolder,
  type SynthesizedFile,
  synthesizeUnlessEdited,
} from "../shared/artefact.ts";
import { defaultEnvironment } from "../shared/default-environment.ts";
import { project } from "../shared/project.ts";
import { readBenchItems } from "./bench-items.ts";
import { defaultModality, measuredModel, sharedModel, simulatedFiles } from "./bench-models.ts";
import type { BenchArguments } from "./bench-options.ts";

/** Prepared run of `bench` or `sweep`, before any process is started. */
export interface PreparedBench {
  readonly context: BenchContext;
  /** Filled during the run. */
  readonly record: BenchRecord;
  /** One per environment, or one for the addresses. */
  readonly sources: readonly TargetSource[];
  /** Images or texts of the parity gate, with their embeddings by the local model. */
  readonly reference: readonly ReferenceItem[];
  /** Measured model. */
  readonly spec: ModelSpec;
}

interface PrepareOptions {
  readonly environments: readonly string[];
  readonly args: BenchArguments;
  /** Endpoints to measure; absent: all existing ones. */
  readonly endpoints?: readonly RequestedEndpoint[];
  readonly signal: AbortSignal;
  readonly hold: BenchContext["hold"];
  readonly onEvent: (event: BenchEvent) => void;
}

/**
 * Reads the model, images, reference and targets of a run and calls `use`.
 *
 * @throws {UserError} if settings, options or files are invalid; no process has been started.
 */
export async function withPreparedBench<Result>(
  { environments, args, endpoints, signal, hold, onEvent }: PrepareOptions,
  use: (prepared: PreparedBench) => Promise<Result>,
): Promise<Result> {
  const startedAt = new Date();
  const phase = (text: string) => onEvent({ kind: "phase", text });
  const scratch = makeScratchFolder();
  try {
    const files = await environmentsOf(environments, args, onEvent);
    const spec = measuredModel(files, args.model);
    const tower = { spec, modality: args.modality ?? defaultModality(spec) };
    requireTower(spec, tower.modality);
    const own = args.weights === "generated" ? sharedModel(files, tower) : undefined;
    const model = await chooseModel(tower, args.weights, onEvent, own);
    const { file, subject } = model;
    const u8Model = tritonModelName(spec, "u8");
    const u8ModelFile = join(scratch, u8Model, "model.onnx");
    const wantsVariants =
      tower.modality === "image" && (endpoints === undefined || endpoints.some(isVariant));
    if (wantsVariants && targetOf(args) === "simulation") {
      phase(`make ${u8Model} of the model`);
      await ensureOptimised(spec, file, u8ModelFile);
    }
    const sources = await sourcesOf(files, args, {
      modelFiles:
        targetOf(args) === "simulation"
          ? await simulatedFiles(files, model, args.weights, onEvent)
          : undefined,
      u8ModelFile: wantsVariants ? u8ModelFile : undefined,
      endpoints,
      signal,
      onEvent,
    });

    const { items, reference, settings } = await readBenchItems(tower, file, args, phase);

    const record = await newBenchRecord({
      project,
      startedAt,
      target: targetOf(args),
      model: subject,
      args: process.argv.slice(2),
      settings: {
        ...defaultSettings,
        endpoints: [],
        windowSeconds: args.window,
        windows: args.windows,
        rounds: args.rounds,
        warmupSeconds: args.warmup,
        durationSeconds: args.duration,
        seed: args.seed,
        images: settings,
      },
    });
    return await use({
      context: {
        tower,
        settings: record.settings,
        items,
        workers: args.workers,
        signal,
        hold,
        onEvent,
      },
      record,
      sources,
      reference,
      spec,
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

const isVariant = ({ endpoint, payload }: RequestedEndpoint) =>
  !hasEmbedApi(endpoint) && (payload === "uint8" || payload === "jpeg");

function targetOf({ target, url }: BenchArguments): BenchRecord["subject"]["target"] {
  return url === undefined ? (target ?? "simulation") : "addresses";
}

interface SourceOptions extends Pick<PrepareOptions, "endpoints" | "signal" | "onEvent"> {
  readonly modelFiles?: ModelFiles;
  readonly u8ModelFile?: string;
}

/** Synthesized files of the environments to measure; none if addresses are given. */
async function environmentsOf(
  names: readonly string[],
  args: BenchArguments,
  onEvent: PrepareOptions["onEvent"],
): Promise<readonly SynthesizedFile[]> {
  const onNotice = (text: string) => onEvent({ kind: "notice", text });
  if (args.url !== undefined) {
    if (names.length > 0 || args.target !== undefined) {
      throw new UserError("--url cannot be combined with environments or --target");
    }
    return [];
  }
  if (args.metricsUrl !== undefined) {
    throw new UserError(
      "--metrics-url requires --url, because environments declare their metrics addresses",
    );
  }
  const environments = names.length === 0 ? [defaultEnvironment("single-gpu")] : names;
  const outdir = outputFolder();
  if (args.synth && targetOf(args) === "simulation") {
    await synthesizeUnlessEdited(environments, outdir, {
      onNotice,
      onSynthesize: () => onEvent({ kind: "phase", text: "synthesize" }),
    });
  }
  return filesWithHelm(environments, environmentFiles(environments, outdir), onNotice);
}

async function sourcesOf(
  files: readonly SynthesizedFile[],
  args: BenchArguments,
  { modelFiles, u8ModelFile, endpoints, signal, onEvent }: SourceOptions,
): Promise<readonly TargetSource[]> {
  const onNotice = (text: string) => onEvent({ kind: "notice", text });
  if (args.url !== undefined) {
    const apiKey = process.env.INFERENCE_API_KEY?.trim() || undefined;
    const here = args.url.every(({ url }) => isLoopback(hostOf(url))) ? thisHost : undefined;
    return [
      {
        kind: "addresses",
        endpoints: args.url,
        metrics: args.metricsUrl ?? [],
        apiKey,
        ...(args.precision === "fp16" && { precision: args.precision }),
        readGpus: here && gpuReader(here, [], signal),
        readDriver: here && (() => driverVersion(here, [], signal)),
      },
    ];
  }
  const names = endpoints && [...new Set(endpoints.map(({ endpoint }) => endpoint))];
  if (targetOf(args) === "simulation") {
    const measured = isSelected("pytorch-http", names) ? files : [];
    const baseline = await pytorchFor(measured, { onProgress: onNotice, signal });
    if (baseline.noPytorch !== undefined) {
      const line = `pytorch-http cannot be measured: ${baseline.noPytorch}`;
      if (endpoints?.some(isNamedBaseline)) throw new UserError(line);
      onNotice(line);
    }
    return files.map((environment) => ({
      kind: "simulated",
      environment,
      serverCommand: simulationServer,
      ...baseline,
      modelRepository: join(project, "model_repository"),
      modelFiles,
      u8ModelFile,
      portOffset: args.portOffset,
      endpoints: names,
    }));
  }
  const environments = files.map(({ name }) => name);
  const deployed = await deployedEnvironments(environments, files, {
    portOffset: args.portOffset,
    signal,
    onNotice,
  });
  return deployed.map((environment) => {
    const { workloads } = readArtefact(environment.file, environment.displayPath);
    const containers = workloads
      .filter(({ kind }) => kind === "container")
      // Triton's image contains nvidia-smi; other containers with a GPU get it from the runtime
      .sort((a, b) => rank(a.service.kind) - rank(b.service.kind))
      .map(({ name }) => name);
    return {
      kind: "deployed",
      environment,
      endpoints: names,
      readGpus: gpuReader(environment.deployed, containers, signal),
      readDriver: () => driverVersion(environment.deployed, containers, signal),
      listFiles: (container, folder) => environment.runInContainer(container, ["ls", folder]),
    };
  });
}

/** This machine as the host of services, for its GPUs. */
const thisHost = { accelerator: "gpu", where: "unix:///var/run/docker.sock" } as const;

/** @param url - Also `host:port`. */
function hostOf(url: string): string {
  return new URL(url.includes("://") ? url : `grpc://${url}`).hostname;
}

const isNamedBaseline = ({ endpoint, byName }: RequestedEndpoint) =>
  endpoint === "pytorch-http" && byName;

const rank = (kind: ServiceKind) => (kind === "triton" ? 0 : 1);

/** GPUs by environment, if their peak is known and the model is the full one. */
export function devicesOf(
  { model }: Pick<BenchRecord["subject"], "model">,
  deployed: readonly Environment[],
): ReadonlyMap<string, Device> {
  if (model.architecture === "tiny" || isStandIn(model)) return new Map();
  return new Map(
    deployed.flatMap(({ name: environment, gpu }) => {
      const spec = gpu && gpuSpecOf(gpu);
      if (gpu === undefined || spec === undefined) return [];
      const { name, fp16DenseTflops } = spec;
      return [[environment, { name, count: gpu.count, fp16DenseTflops }] as const];
    }),
  );
}

/** Completes a record with the price of `--price` and the peaks of the GPUs. */
function finishRun(
  { context, record, sources }: PreparedBench,
  { price }: BenchArguments,
): BenchRecord {
  if (price !== undefined) {
    const date = record.startedAt.slice(0, "2026-11-21".length);
    record.subject.price = { usdPerHour: price, date, source: "--price" };
  }
  const deployed = sources.flatMap((source) =>
    source.kind === "deployed" ? [source.environment.deployed] : [],
  );
  return finishBenchRecord(record, towerOf(context.tower), devicesOf(record.subject, deployed));
}

export interface RunOptions extends Pick<PrepareOptions, "endpoints"> {
  readonly environments: readonly string[];
  readonly args: BenchArguments;
  /** Maximum number of load points, for the progress display. */
  readonly measurementCount?: number;
}

/**
 * Runs `work` with a progress display and saves and prints its record, also after Ctrl-C. Sets the exit code: 0 success, 1
 * failure, 130 interrupted.
 *
 * @throws {UserError} if settings, options or files are invalid.
 */
export async function runAndReport(
  { environments, args, measurementCount, ...options }: RunOptions,
  work: (prepared: PreparedBench) => Promise<void>,
): Promise<void> {
  requireWritable(args);
  const progress = startBenchProgress(process.stderr, measurementCount);
  const interrupt = onInterrupt();
  const { signal, hold } = interrupt;
  try {
    await withPreparedBench(
      { environments, args, signal, hold, onEvent: progress.onEvent, ...options },
      async (prepared) => {
        const { record } = prepared;
        try {
          await work(prepared);
          signal.throwIfAborted();
        } catch (error) {
          // keep the measurements of a failed run
          if (record.loadPoints.length + record.studies.length === 0) throw error;
          if (signal.aborted) record.interrupted = true;
          else record.failures.push(messageOf(error));
        }
        progress.end();
        report(finishRun(prepared, args), args);
      },
    );
  } catch (error) {
    progress.end();
    if (!signal.aborted) throw error;
    console.error("clipstack: interrupted; nothing was measured, and nothing is left running");
    process.exitCode = new Interrupted().exitCode;
  } finally {
    interrupt.remove();
  }
}

function reportFolder({ report: folder }: BenchArguments): string {
  return resolve(folder ?? join(project, "bench/reports"));
}

/** Checks that outputs can be written before measuring. */
function requireWritable(args: BenchArguments): void {
  const folder = reportFolder(args);
  const code = (error: unknown) => (error as NodeJS.ErrnoException).code;
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    throw new UserError(`--report ${args.report ?? folder} cannot be written: ${code(error)}`);
  }
  if (args.output === undefined) return;
  try {
    // existing files keep their contents; a new file is removed
    const existed = existsSync(args.output);
    closeSync(openSync(args.output, "a"));
    if (!existed) rmSync(args.output);
  } catch (error) {
    throw new UserError(`--output ${args.output} cannot be written: ${code(error)}`);
  }
}

function report(record: BenchRecord, args: BenchArguments): void {
  const json = benchRecordText(record);
  const rendered = benchReport(record);
  const saved = saveReports(reportFolder(args), benchReportName(record), json, rendered);
  if (args.output !== undefined) writeFileSync(args.output, json);
  if (args.json) {
    process.stdout.write(json);
    for (const failure of record.failures) console.error(`✘ ${failure}`);
  } else {
    console.log(`\n${renderText(rendered)}report: ${relative("", saved.html)}`);
  }
  if (record.interrupted) {
    console.error("clipstack: interrupted; what was measured until then is saved");
  }
  process.exitCode = record.interrupted ? new Interrupted().exitCode : record.passed ? 0 : 1;
}
