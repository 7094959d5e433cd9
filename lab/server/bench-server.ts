import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { type Command, InvalidArgumentError, Option } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import {
  ensurePython,
  fastapiPackages,
  type PythonPackages,
} from "../../cli/model/python-environment.ts";
import { project } from "../../cli/shared/project.ts";
import { UserError } from "../../contract/user-error.ts";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import { modelInfo } from "../../model-tools/model-info.ts";
import { loadImages } from "../../model-tools/samples/load-images.ts";
import { renderText } from "../../report/render/render-text.ts";
import { reportName, type SavedReports, saveReports } from "../../report/save-reports.ts";
import { describeCommit, describeMachine } from "../../target/readings/machine.ts";
import { compare } from "./compare.ts";
import { type Load, loads, type SubjectName, towerLoadNames } from "./loads.ts";
import type { Bench } from "./measure.ts";
import { benchModels, benchTowers } from "./models.ts";
import { type BenchRun, type ServerRecord, serverRecordVersion } from "./record.ts";
import { serverReport } from "./report.ts";
import { chooseLoads, makePayloads, type Payloads, planRounds, runPlan } from "./run.ts";

interface BenchServerOptions {
  readonly rounds: number;
  /** Length of each measurement after its warm-up, in seconds. */
  readonly seconds: number;
  /** Names of loads; empty for all. */
  readonly only: readonly string[];
  /** Towers to measure instead of the default model, as `<model>[:image|:text]`. */
  readonly models: readonly string[];
  readonly baseline: boolean;
  /** Folder for the record and its reports. */
  readonly reports: string;
  readonly onProgress: (line: string) => void;
}

interface BenchServerResult {
  readonly record: ServerRecord;
  /** Missed targets, as sentences. */
  readonly missedTargets: readonly string[];
  readonly saved: SavedReports;
}

/** Warm-up before each measurement, in seconds: compiles code and opens connections. */
const warmupSeconds = 2;

/** Settings of the baseline: one process with the defaults of ONNX Runtime; without spinning, single images took longer. */
const baselineSettings = { WORKERS: "1", ALLOW_SPINNING: "1" } as const;

/**
 * Measures the embed server against its ceiling and its baseline, and saves the record.
 *
 * @throws {UserError} if an option is invalid
 * @throws {Interrupted} on SIGINT and SIGTERM; nothing is left running
 */
export async function benchServer(options: BenchServerOptions): Promise<BenchServerResult> {
  const towers = options.models.flatMap(benchTowers);
  const names = towers.length === 0 ? loads.map(({ id }) => id) : towerLoadNames;
  const unknown = options.only.find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new UserError(`--only must be of ${names.join(", ")}, got '${unknown}'`);
  }
  const chosen = chooseLoads(options.only, towers);
  const interrupt = onInterrupt();
  const startedAt = new Date().toISOString();
  const { onProgress } = options;
  try {
    const models = await benchModels(chosen, towers, onProgress);
    const baseline = await chooseBaseline(options, interrupt.signal);
    if ("reason" in baseline) onProgress(`the baseline is not measured: ${baseline.reason}`);
    onProgress("generating the images");
    const payloads = await makePayloads(chosen);
    const bench: Bench = {
      serverCommand: [process.execPath, await compiledServer(onProgress)],
      ceilingCommand: [process.execPath, join(project, "inference/session/raw-session.mjs")],
      ceilingSessionOptions: sessionOptions(),
      models,
      baseline:
        "python" in baseline ? { python: baseline.python, settings: baselineSettings } : undefined,
      bodies: payloads.bodies,
      images: payloads.images,
      warmupSeconds,
      seconds: options.seconds,
      signal: interrupt.signal,
    };
    const steps = planRounds(
      chosen,
      options.rounds,
      new Set<SubjectName>("python" in baseline ? [] : ["baseline"]),
    );
    const runs = await runPlan(bench, steps, (run, index) =>
      onProgress(`${index + 1}/${steps.length}  ${runLine(run)}`),
    );
    const record: ServerRecord = {
      schema: serverRecordVersion,
      kind: "bench-server",
      startedAt,
      finishedAt: new Date().toISOString(),
      subject: await subjectOf(options, chosen, bench, baseline, payloads),
      runs: [...runs],
    };
    const name = reportName(record.startedAt, "bench-server");
    const json = `${JSON.stringify(record)}\n`;
    const saved = saveReports(options.reports, name, json, serverReport(record));
    return { record, missedTargets: compare(record).missedTargets, saved };
  } catch (error) {
    if (interrupt.signal.aborted)
      throw new Interrupted("nothing is left running", { cause: error });
    throw error;
  } finally {
    interrupt.remove();
  }
}

/** Python of a baseline with its packages, or the reason for not measuring it. */
export type BaselineEnvironment =
  | { readonly python: string; readonly packages: string[] }
  | { readonly reason: string };

async function chooseBaseline(
  { baseline, models, onProgress }: BenchServerOptions,
  signal: AbortSignal,
): Promise<BaselineEnvironment> {
  if (!baseline) return { reason: "--no-baseline" };
  if (models.length > 0) return { reason: "it serves the default model only" };
  return await prepareBaseline(fastapiPackages, "lab/fastapi", signal, onProgress);
}

/**
 * Installs the packages of a baseline, or returns the reason if they cannot be installed.
 *
 * @param folder - Folder of the baseline with its `requirements.txt`.
 */
export async function prepareBaseline(
  python: PythonPackages,
  folder: string,
  signal: AbortSignal,
  onProgress: (line: string) => void,
): Promise<BaselineEnvironment> {
  try {
    const lock = join(project, folder, "requirements.txt");
    const packages = readFileSync(lock, "utf8").trim().split("\n");
    return { python: await ensurePython(python, { signal, onProgress }), packages };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return { reason: error.message };
  }
}

/** Compiles the server into `inference-image/dist`, as for the container. */
export async function compiledServer(onProgress: (line: string) => void): Promise<string> {
  onProgress("compiling the server");
  const folder = join(project, "inference-image");
  await promisify(execFile)(process.execPath, [join(folder, "build.mjs")]);
  return join(folder, "dist", "main.js");
}

function runLine({ load, subject, round, imagesPerSecond, latency, failures }: BenchRun): string {
  const failed = Object.entries(failures).map(([code, count]) => `, ${count} × ${code}`);
  const rate = imagesPerSecond === undefined ? "no rate" : `${imagesPerSecond.toFixed(1)} images/s`;
  const times =
    latency === undefined
      ? ""
      : `, p50 ${latency.p50Ms.toFixed(1)} ms, p95 ${latency.p95Ms.toFixed(1)} ms`;
  return `round ${round}  ${load.padEnd(8)} ${subject.padEnd(11)}  ${rate}${times}${failed.join("")}`;
}

async function subjectOf(
  options: BenchServerOptions,
  chosen: readonly Load[],
  bench: Bench,
  baseline: BaselineEnvironment,
  { images }: Payloads,
): Promise<ServerRecord["subject"]> {
  const versions = versionsOf();
  const models: ServerRecord["subject"]["models"] = {};
  for (const [name, { standard }] of Object.entries(bench.models)) {
    const { sha256, bytes, weights, source } = await modelInfo(standard);
    models[name] = { file: basename(standard), sha256, bytes, weights, source };
  }
  const { full } = bench.models;
  const measured = full === undefined ? Object.entries(bench.models) : [["full", full] as const];
  const optimised = measured.flatMap(([name, model]) =>
    model.optimised.map(({ modelPath: _, ...agreement }) => ({ model: name, ...agreement })),
  );
  const precisions = measured.map(([, model]) => model.optimised[0]?.parts.join(", ") ?? "fp32");
  return {
    ...(await describeCommit(project)),
    machine: describeMachine(),
    versions,
    models,
    ceiling: {
      file: listOf(measured.map(([, { ceiling }]) => basename(ceiling))),
      precision: listOf(precisions),
      sessionOptions: bench.ceilingSessionOptions,
    },
    optimisedModels: optimised,
    baseline:
      "python" in baseline
        ? { measured: true, packages: baseline.packages, settings: { ...baselineSettings } }
        : { measured: false, reason: baseline.reason },
    images: [...images].map(([kind, files]) => ({
      kind,
      width: loadImages[kind].width,
      height: loadImages[kind].height,
      bytes: files.map(({ length }) => length),
    })),
    settings: {
      rounds: options.rounds,
      seconds: options.seconds,
      warmupSeconds: bench.warmupSeconds,
      loads: chosen.map(({ id }) => id),
      loadGenerator: "clipstack target/load",
    },
  };
}

/** Distinct values, separated by commas. */
function listOf(values: readonly string[]): string {
  return [...new Set(values)].join(", ");
}

function versionsOf(): Record<string, string> {
  const installed = (name: string): string => {
    const require = createRequire(join(project, "inference-image/package.json"));
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

interface Arguments {
  readonly rounds: number;
  readonly seconds: number;
  readonly only?: readonly string[];
  readonly model?: readonly string[];
  readonly quick?: true;
  readonly baseline: boolean;
  readonly strict?: true;
  readonly report: string;
  readonly json?: true;
}

/** Options of `--quick`, a smoke test. */
const quick = { rounds: 1, seconds: 1, only: ["tiny"] } as const;

/** Declares `npm run lab -- server`, which measures the embed server against its ceiling and its baseline. */
export function registerBenchServer(command: Command): void {
  command
    .description(
      "measure the embed server compared with ONNX Runtime alone (ceiling) and a FastAPI service (baseline), in alternating rounds",
    )
    .option("--rounds <number>", "number of rounds", integer, 3)
    .option(
      "--seconds <number>",
      "length of a measurement in seconds, after its warm-up",
      secondsOf,
      4,
    )
    .option("--only <loads...>", `loads to measure: ${loads.map(({ id }) => id).join(", ")}`)
    .option(
      "--model <models...>",
      `towers to measure with the loads ${towerLoadNames.join(" and ")} instead of the default model, compared with the ceiling: <model>[:image|:text]`,
    )
    .option("--quick", "smoke test: the tiny model, one round, one second")
    .option("--no-baseline", "skip the FastAPI service, which requires Python and its packages")
    .option("--strict", "exit with 1 if a target is missed")
    .addOption(
      new Option("--report <folder>", "folder for the record and the reports").default(
        join(project, "bench/reports"),
        "bench/reports",
      ),
    )
    .option("--json", "print only the record on stdout")
    .addHelpText(
      "after",
      `
Examples:
  $ npm run lab -- server
  $ npm run lab -- server --only c16 photos --rounds 5
  $ npm run lab -- server --model dinov2-small openclip-vit-b32:text
  $ npm run lab -- server --quick --no-baseline

Exit codes: 0 success, 1 failure (with --strict also a missed target), 2 wrong usage.`,
    )
    .action(run);
}

async function run(args: Arguments): Promise<void> {
  const everything = args.quick && args.model === undefined ? quick.only : [];
  const { rounds, seconds } = args.quick ? quick : args;
  const only = args.only ?? everything;
  try {
    const { record, missedTargets, saved } = await benchServer({
      rounds,
      seconds,
      only,
      models: args.model ?? [],
      baseline: args.baseline,
      reports: resolve(args.report),
      onProgress: (line) => console.error(line),
    });
    console.log(
      args.json ? JSON.stringify(record, null, 2) : `\n${renderText(serverReport(record))}`,
    );
    console.error(`record: ${relative("", saved.json)}\nreport: ${relative("", saved.html)}`);
    if (args.strict && missedTargets.length > 0) process.exitCode = 1;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    console.error(`clipstack: interrupted; ${error.message}`);
    process.exitCode = error.exitCode;
  }
}

/** Parses a number of rounds. */
export function integer(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < 1 || value > 100) {
    throw new InvalidArgumentError("It must be an integer from 1 to 100.");
  }
  return value;
}

/** Parses the length of a measurement in seconds. */
export function secondsOf(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value > 0 && value <= 40)) {
    throw new InvalidArgumentError("It must be more than 0 and at most 40.");
  }
  return value;
}
