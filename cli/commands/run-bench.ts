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
import { dirname, join, relative, resolve } from "node:path";
import { readArtefact } from "../../artefact/artefact.ts";
import { environmentModel } from "../../artefact/environment-model.ts";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { benchReport } from "../../bench/report/bench-report.ts";
import { renderText } from "../../bench/report/render-text.ts";
import { benchRecordText, benchReportName, saveReports } from "../../bench/report/save-reports.ts";
import type { BenchContext, BenchEvent } from "../../bench/run/bench-events.ts";
import { readBenchImages } from "../../bench/run/bench-images.ts";
import { startBenchProgress } from "../../bench/run/bench-progress.ts";
import { defaultSettings } from "../../bench/run/bench-run.ts";
import type { TargetsSource } from "../../bench/run/bench-targets.ts";
import type { RequestedEndpoint } from "../../bench/run/choose-endpoints.ts";
import { finishBenchRecord, newBenchRecord } from "../../bench/run/compose-record.ts";
import type { PreparedImage } from "../../bench/run/reference.ts";
import {
  makeReference,
  type Preprocess,
  type ReferenceImage,
  readSamples,
} from "../../bench/run/reference.ts";
import type { Device } from "../../bench/stats/roofline.ts";
import type { Environment } from "../../contract/environment.ts";
import { gpuCatalogue, gpuNames } from "../../contract/gpus.ts";
import { openclipVitB32U8 } from "../../contract/model-signature.ts";
import { serverEnv } from "../../contract/server-env.ts";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { normalised } from "../../inference/preprocess/image-tensor.ts";
import { preprocess } from "../../inference/preprocess/preprocess.ts";
import { repositoryModel } from "../../model-tools/generate.ts";
import { ensureOptimised } from "../../model-tools/optimise.ts";
import { sampleLimit } from "../../verify/check-run.ts";
import {
  environmentFiles,
  filesWithHelm,
  outputFolder,
  type SynthesizedFile,
  synthesizeUnlessEdited,
} from "../artefact.ts";
import { defaultEnvironment } from "../default-environment.ts";
import { deployedEnvironments } from "../host/deployed-environments.ts";
import { gpuReader } from "../host/gpu-reader.ts";
import { project } from "../project.ts";
import type { BenchArguments } from "./bench-options.ts";
import { chooseModel, simulationServer } from "./verify.ts";

/** Prepared run of `bench` or `sweep`, before any process is started. */
export interface PreparedBench {
  readonly context: BenchContext;
  /** Filled during the run. */
  readonly record: BenchRecord;
  /** One per environment, or one for the addresses. */
  readonly sources: readonly TargetsSource[];
  /** Images of the parity gate, with their embeddings by the local model. */
  readonly reference: readonly ReferenceImage[];
  /** ONNX file of `--model`. */
  readonly modelFile: string;
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
    const own = args.model === "generated" ? sharedModel(files) : undefined;
    const { file, subject } = await chooseModel(args.model, onEvent, own);
    const u8ModelFile = join(scratch, openclipVitB32U8.name, "model.onnx");
    const wantsVariants = endpoints === undefined || endpoints.some(isVariant);
    if (wantsVariants && targetOf(args) === "simulation") {
      phase(`make ${openclipVitB32U8.name} of the model`);
      await ensureOptimised(file, u8ModelFile);
    }
    const sources = await sourcesOf(files, args, {
      modelFile: args.model === "generated" ? undefined : file,
      u8ModelFile: wantsVariants ? u8ModelFile : undefined,
      endpoints,
      signal,
      onEvent,
    });

    const folder = resolve(args.images ?? join(project, "model-tools/samples"));
    phase("read the images");
    const images = await readBenchImages(folder, preprocessImage);
    const samples = readSamples(folder, sampleLimit);
    phase(`reference embeddings of ${samples.length} images`);
    const { images: reference } = await makeReference(samples, file, preprocessImage);

    const record = await newBenchRecord({
      project,
      startedAt,
      target: targetOf(args),
      model: subject,
      settings: {
        ...defaultSettings,
        endpoints: [],
        windowSeconds: args.window,
        tolerance: args.stability,
        maxWindows: args.maxTrials,
        durationSeconds: args.duration,
        seed: args.seed,
        images: imageSettings(args.images, images),
      },
    });
    return await use({
      context: { settings: record.settings, images, workers: args.workers, signal, hold, onEvent },
      record,
      sources,
      reference,
      modelFile: file,
    });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

const preprocessImage: Preprocess = async (image) => {
  const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});
  return normalised(await preprocess(image, { maxPixels }));
};

const isVariant = ({ endpoint, payload }: RequestedEndpoint) =>
  endpoint !== "embed-http" && (payload === "uint8" || payload === "jpeg");

function targetOf({ target, url }: BenchArguments): BenchRecord["subject"]["target"] {
  return url === undefined ? (target ?? "simulation") : "addresses";
}

function imageSettings(
  folder: string | undefined,
  images: readonly PreparedImage[],
): BenchRecord["settings"]["images"] {
  const bytes = images.reduce((sum, image) => sum + image.bytes.byteLength, 0);
  return {
    source: folder === undefined ? "the samples of clipstack" : "a folder given with --images",
    count: images.length,
    meanBytes: Math.round(bytes / images.length),
  };
}

interface SourceOptions extends Pick<PrepareOptions, "endpoints" | "signal" | "onEvent"> {
  readonly modelFile?: string;
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

/**
 * Returns the model file that all environments load, if it is on this machine.
 *
 * @throws {UserError} if environments load different files, because a record has one model.
 */
export function sharedModel(files: readonly SynthesizedFile[]): string | undefined {
  const models = files.map(({ file, displayPath }) => {
    const artefact = readArtefact(file, displayPath);
    return environmentModel(artefact, dirname(resolve(file)), existsSync) ?? repositoryModel;
  });
  const other = models.findIndex((model) => model !== models[0]);
  if (other < 0) return models[0];
  throw new UserError(
    `environments of one run must load the same model file, got ${models[0]} (${files[0]?.name}) and ${models[other]} (${files[other]?.name}): measure one at a time`,
  );
}

async function sourcesOf(
  files: readonly SynthesizedFile[],
  args: BenchArguments,
  { modelFile, u8ModelFile, endpoints, signal, onEvent }: SourceOptions,
): Promise<readonly TargetsSource[]> {
  const onNotice = (text: string) => onEvent({ kind: "notice", text });
  if (args.url !== undefined) {
    const apiKey = process.env.INFERENCE_API_KEY?.trim() || undefined;
    return [{ kind: "addresses", endpoints: args.url, metrics: args.metricsUrl ?? [], apiKey }];
  }
  const names = endpoints && [...new Set(endpoints.map(({ endpoint }) => endpoint))];
  if (targetOf(args) === "simulation") {
    return files.map((environment) => ({
      kind: "simulated",
      environment,
      serverCommand: simulationServer,
      modelRepository: join(project, "model_repository"),
      modelFile,
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
    };
  });
}

const rank = (kind: "embed" | "triton") => (kind === "triton" ? 0 : 1);

/** GPUs by environment, if their peak is known and the model is the full one. */
export function devicesOf(
  { model }: Pick<BenchRecord["subject"], "model">,
  deployed: readonly Environment[],
): ReadonlyMap<string, Device> {
  if (model.architecture === "tiny") return new Map();
  return new Map(
    deployed.flatMap(({ name: environment, gpu }) => {
      const known = gpuNames.find((name) => name === gpu?.name);
      if (gpu === undefined || known === undefined) return [];
      const { fp16DenseTflops } = gpuCatalogue[known];
      return [[environment, { name: known, count: gpu.count, fp16DenseTflops }] as const];
    }),
  );
}

/** Completes a record with the price of `--price` and the peaks of the GPUs. */
function finishRun({ record, sources }: PreparedBench, { price }: BenchArguments): BenchRecord {
  if (price !== undefined) {
    const date = record.startedAt.slice(0, "2026-11-21".length);
    record.subject.price = { usdPerHour: price, date, source: "--price" };
  }
  const deployed = sources.flatMap((source) =>
    source.kind === "deployed" ? [source.environment.deployed] : [],
  );
  return finishBenchRecord(record, devicesOf(record.subject, deployed));
}

export interface RunOptions extends Pick<PrepareOptions, "endpoints"> {
  readonly environments: readonly string[];
  readonly args: BenchArguments;
  /** Maximum number of load points, for the progress display. */
  readonly loadPointCount?: number;
}

/**
 * Runs `work` with a progress display and saves and prints its record, also after Ctrl-C. Sets the exit code: 0 success, 1
 * failure, 130 interrupted.
 *
 * @throws {UserError} if settings, options or files are invalid.
 */
export async function runAndReport(
  { environments, args, loadPointCount, ...options }: RunOptions,
  work: (prepared: PreparedBench) => Promise<void>,
): Promise<void> {
  requireWritable(args);
  const progress = startBenchProgress(process.stderr, loadPointCount);
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
