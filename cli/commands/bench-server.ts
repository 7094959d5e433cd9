import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join, relative, resolve } from "node:path";
import { promisify } from "node:util";
import { type Command, InvalidArgumentError } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { compare } from "../../bench/baselines/compare.ts";
import { type Load, loads, type SubjectName } from "../../bench/baselines/loads.ts";
import type { Bench, BenchForm, BenchModel } from "../../bench/baselines/measure.ts";
import {
  type BenchRun,
  type ServerRecord,
  serverRecordVersion,
} from "../../bench/baselines/record.ts";
import { serverReport } from "../../bench/baselines/report.ts";
import {
  chooseLoads,
  makePayloads,
  type Payloads,
  planRounds,
  runPlan,
} from "../../bench/baselines/run.ts";
import { renderText } from "../../bench/report/render-text.ts";
import { reportName, type SavedReports, saveReports } from "../../bench/report/save-reports.ts";
import { describeCommit, describeMachine } from "../../bench/run/machine.ts";
import { UserError } from "../../contract/user-error.ts";
import { sessionOptions } from "../../inference/session/onnx-session.ts";
import { ensureGeneratedModel, ensureTinyModel } from "../../model-tools/generate.ts";
import { modelInfo } from "../../model-tools/model-info.ts";
import { ensureOptimised } from "../../model-tools/optimise.ts";
import { loadImages } from "../../model-tools/samples/load-images.ts";
import { ensureConverted } from "../model/model-prepare.ts";
import { ensurePython, fastapiPackages } from "../model/python-environment.ts";
import { project } from "../project.ts";

export interface BenchServerOptions {
  readonly rounds: number;
  /** Length of each measurement, after its warm-up. */
  readonly seconds: number;
  /** Names of loads; none: all of them. */
  readonly only: readonly string[];
  readonly peer: boolean;
  /** Folder for the record and its reports. */
  readonly reports: string;
  readonly say: (line: string) => void;
}

export interface BenchServerResult {
  readonly record: ServerRecord;
  /** Targets that were missed, in words. */
  readonly misses: readonly string[];
  readonly saved: SavedReports;
}

/** Before a measurement, and not counted: code is compiled, and what opens with the first load is open. */
const warmupSeconds = 2;

/** What the peer is started with: one process with the defaults of ONNX Runtime; without spinning, single images took longer. */
const peerSettings = { WORKERS: "1", ALLOW_SPINNING: "1" } as const;

/**
 * Measure the embed server against ONNX Runtime alone and against the peer, and save the record.
 *
 * @throws {UserError} wrong options
 * @throws {Interrupted} on SIGINT and SIGTERM; nothing is left running
 */
export async function benchServer(options: BenchServerOptions): Promise<BenchServerResult> {
  const unknown = options.only.find((name) => !loads.some(({ id }) => id === name));
  if (unknown !== undefined) {
    throw new UserError(
      `--only must be of ${loads.map(({ id }) => id).join(", ")}, got '${unknown}'`,
    );
  }
  const chosen = chooseLoads(options.only);
  const interrupt = onInterrupt();
  const startedAt = new Date().toISOString();
  const { say } = options;
  try {
    const models = await prepareModels(chosen, say);
    const peer = options.peer ? await preparePeer(interrupt.signal, say) : { reason: "--no-peer" };
    if ("reason" in peer) say(`the baseline is not measured: ${peer.reason}`);
    say("making the images");
    const payloads = await makePayloads(chosen);
    const bench: Bench = {
      serverCommand: [process.execPath, await compiledServer(say)],
      limitCommand: [process.execPath, join(project, "inference/session/raw-session.mjs")],
      limitSessionOptions: sessionOptions(),
      models,
      peer: "python" in peer ? { python: peer.python, settings: peerSettings } : undefined,
      bodies: payloads.bodies,
      eachImage: payloads.eachImage,
      warmupSeconds,
      seconds: options.seconds,
      signal: interrupt.signal,
    };
    const steps = planRounds(
      chosen,
      options.rounds,
      new Set<SubjectName>("python" in peer ? [] : ["peer"]),
    );
    const runs = await runPlan(bench, steps, (run, index) =>
      say(`${index + 1}/${steps.length}  ${runLine(run)}`),
    );
    const record: ServerRecord = {
      schema: serverRecordVersion,
      kind: "bench-server",
      startedAt,
      finishedAt: new Date().toISOString(),
      subject: await subjectOf(options, chosen, bench, peer, payloads),
      runs: [...runs],
    };
    const name = reportName(record.startedAt, "bench-server");
    const json = `${JSON.stringify(record)}\n`;
    const saved = saveReports(options.reports, name, json, serverReport(record));
    return { record, misses: compare(record).misses, saved };
  } catch (error) {
    if (interrupt.signal.aborted)
      throw new Interrupted("nothing is left running", { cause: error });
    throw error;
  } finally {
    interrupt.remove();
  }
}

type PeerEnvironment =
  | { readonly python: string; readonly packages: string[] }
  | { readonly reason: string };

async function preparePeer(
  signal: AbortSignal,
  onProgress: (line: string) => void,
): Promise<PeerEnvironment> {
  try {
    const lock = join(project, "bench/baselines/fastapi/requirements.txt");
    const packages = readFileSync(lock, "utf8").trim().split("\n");
    return { python: await ensurePython(fastapiPackages, { signal, onProgress }), packages };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return { reason: error.message };
  }
}

/** The server as the container runs it: compiled, into `inference-image/dist`. */
async function compiledServer(say: (line: string) => void): Promise<string> {
  say("compiling the server");
  const folder = join(project, "inference-image");
  await promisify(execFile)(process.execPath, [join(folder, "build.mjs")]);
  return join(folder, "dist", "main.js");
}

async function prepareModels(
  chosen: readonly Load[],
  say: (line: string) => void,
): Promise<Bench["models"]> {
  const models: Partial<Record<Load["model"], BenchModel>> = {};
  for (const model of new Set(chosen.map((load) => load.model))) {
    let told = false;
    const standard =
      model === "tiny"
        ? await ensureTinyModel()
        : await ensureGeneratedModel(() => {
            if (!told) say("generating the full-size model");
            told = true;
          });
    const needed = chosen.filter((load) => load.model === model);
    const isInt8 = needed.some((load) => load.subjects.includes("server-int8"));
    const forms: BenchModel["forms"] = [
      await benchForm("fp32", await ensureOptimised(standard)),
      ...(isInt8 ? [await benchForm("int8", await ensureConverted(standard, "int8", say))] : []),
    ];
    const [own] = forms;
    models[model] = { standard, limit: own.modelPath, forms };
  }
  return models;
}

/** @param modelPath - A prepared file with a manifest. */
async function benchForm(precision: BenchForm["precision"], modelPath: string): Promise<BenchForm> {
  const { precision: part, agreement } = await modelInfo(modelPath);
  return { modelPath, precision, parts: [part!], ...agreement! };
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
  peer: PeerEnvironment,
  { images }: Payloads,
): Promise<ServerRecord["subject"]> {
  const versions = versionsOf();
  const modelOf = async (model: BenchModel | undefined) => {
    if (model === undefined) return undefined;
    const { sha256, bytes, weights, source } = await modelInfo(model.standard);
    return { file: basename(model.standard), sha256, bytes, weights, source };
  };
  const { full, tiny } = bench.models;
  const limit = (full ?? tiny)!;
  return {
    ...(await describeCommit(project)),
    machine: describeMachine(),
    versions,
    models: { full: await modelOf(full), tiny: await modelOf(tiny) },
    limit: {
      file: basename(limit.limit),
      form: limit.forms[0]?.parts.join(", ") ?? "as it is",
      sessionOptions: bench.limitSessionOptions,
    },
    forms: limit.forms.map(({ modelPath: _, ...form }) => form),
    peer:
      "python" in peer
        ? { measured: true, packages: peer.packages, settings: { ...peerSettings } }
        : { measured: false, reason: peer.reason },
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
      loadGenerator: "clipstack bench/load",
    },
  };
}

/** Versions of what is measured and of what measures. */
function versionsOf(): Record<string, string> {
  const installed = (name: string): string => {
    const require = createRequire(join(project, "inference-image/package.json"));
    for (const folder of require.resolve.paths(name) ?? []) {
      try {
        return JSON.parse(readFileSync(join(folder, name, "package.json"), "utf8")).version;
      } catch {
        // not in this one
      }
    }
    return "unknown";
  };
  const names = ["onnxruntime-node", "sharp", "fastify"];
  return Object.fromEntries(names.map((name) => [name, installed(name)]));
}

interface Arguments {
  readonly rounds: number;
  readonly seconds: number;
  readonly only?: readonly string[];
  readonly quick?: true;
  readonly peer: boolean;
  readonly strict?: true;
  readonly report: string;
  readonly json?: true;
}

/** What `--quick` measures: that everything works, not how fast it is. */
const quick = { rounds: 1, seconds: 1, only: ["tiny"] } as const;

/** `clipstack bench-server`: the embed server beside its ceiling and its baseline. */
export function registerBenchServer(program: Command): void {
  program
    .command("bench-server")
    .description(
      "measure the embed server against ONNX Runtime alone (ceiling) and a FastAPI service (baseline), in alternating rounds",
    )
    .option("--rounds <number>", "how often everything is measured", integer, 3)
    .option("--seconds <number>", "length of a measurement, after its warm-up", secondsOf, 4)
    .option("--only <loads...>", `some of ${loads.map(({ id }) => id).join(", ")}`)
    .option("--quick", "the tiny model only, one round, one second: does it work?")
    .option("--no-peer", "without the FastAPI service, which needs Python and its packages")
    .option("--strict", "exit with 1 if a target is missed")
    .option(
      "--report <folder>",
      "folder of the record and its reports",
      join(project, "bench/reports"),
    )
    .option("--json", "print the record, and nothing else, on stdout")
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack bench-server
  $ npx clipstack bench-server --only c16 photos --rounds 5
  $ npx clipstack bench-server --quick --no-peer

Exit codes: 0 measured, 1 failed (with --strict: or a target missed), 2 wrong usage.`,
    )
    .action(run);
}

async function run(args: Arguments): Promise<void> {
  const { rounds, seconds, only } = args.quick
    ? { ...quick, only: args.only ?? quick.only }
    : { ...args, only: args.only ?? [] };
  try {
    const { record, misses, saved } = await benchServer({
      rounds,
      seconds,
      only,
      peer: args.peer,
      reports: resolve(args.report),
      say: (line) => console.error(line),
    });
    console.log(
      args.json ? JSON.stringify(record, null, 2) : `\n${renderText(serverReport(record))}`,
    );
    console.error(`record: ${relative("", saved.json)}\nreport: ${relative("", saved.html)}`);
    if (args.strict && misses.length > 0) process.exitCode = 1;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    console.error(`clipstack: interrupted; ${error.message}`);
    process.exitCode = error.exitCode;
  }
}

function integer(given: string): number {
  const value = Number(given);
  if (!/^\d+$/.test(given) || value < 1 || value > 100) {
    throw new InvalidArgumentError("It must be an integer, 1 to 100.");
  }
  return value;
}

function secondsOf(given: string): number {
  const value = Number(given);
  if (given.trim() === "" || !(value > 0 && value <= 40)) {
    throw new InvalidArgumentError("It must be more than 0 and at most 40.");
  }
  return value;
}
