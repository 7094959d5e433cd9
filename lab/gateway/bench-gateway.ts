import { availableParallelism } from "node:os";
import { relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import { fastapiTritonPackages } from "../../cli/model/python-environment.ts";
import { project } from "../../cli/shared/project.ts";
import { runProgram } from "../../cli/shared/run-program.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { UserError } from "../../contract/user-error.ts";
import { loadImages, makeLoadImages } from "../../model-tools/samples/load-images.ts";
import { renderText } from "../../report/render/render-text.ts";
import { reportName, type SavedReports, saveReports } from "../../report/save-reports.ts";
import { describeCommit, describeMachine } from "../../target/readings/machine.ts";
import {
  type BaselineEnvironment,
  compiledServer,
  integer,
  prepareBaseline,
  secondsOf,
} from "../server/bench-server.ts";
import { compareGateway, gatewayResults } from "./compare.ts";
import { type GatewayLoad, type GatewaySubject, gatewayLoads } from "./loads.ts";
import { type GatewayRecord, type GatewayRun, gatewayRecordVersion } from "./record.ts";
import { gatewayReport } from "./report.ts";
import { planGateway, runGateway } from "./run.ts";

interface BenchGatewayOptions {
  readonly rounds: number;
  /** Length of each measurement after its warm-up, in seconds. */
  readonly seconds: number;
  /** Names of loads; empty for all. */
  readonly only: readonly string[];
  readonly baseline: boolean;
  /** Folder for the record and its reports. */
  readonly reports: string;
  readonly onProgress: (line: string) => void;
}

interface BenchGatewayResult {
  readonly record: GatewayRecord;
  readonly missedTargets: number;
  readonly saved: SavedReports;
}

/** Warm-up before each measurement, in seconds: compiles code and opens connections. */
const warmupSeconds = 4;

/**
 * Measures the processor time of the embed server as a gateway, of its baseline and of its ceiling, and saves the record.
 *
 * @throws {UserError} if an option is invalid, or on a system without `/proc`
 * @throws {Interrupted} on SIGINT and SIGTERM; nothing is left running
 */
export async function benchGateway(options: BenchGatewayOptions): Promise<BenchGatewayResult> {
  const loads = chooseLoads(options.only);
  const interrupt = onInterrupt();
  const { signal } = interrupt;
  const startedAt = new Date().toISOString();
  const { onProgress, seconds, rounds } = options;
  try {
    const baseline: BaselineEnvironment = options.baseline
      ? await prepareBaseline(fastapiTritonPackages, "lab/fastapi-triton", signal, onProgress)
      : { reason: "--no-baseline" };
    if ("reason" in baseline)
      onProgress(`neither baseline nor ceiling is measured: ${baseline.reason}`);
    onProgress("generating the images");
    const kinds = [...new Set(loads.map(({ images }) => images))];
    const images = new Map(
      await Promise.all(
        kinds.map(async (kind) => [kind, await makeLoadImages(loadImages[kind])] as const),
      ),
    );
    const pinned = await canPin();
    const excluded = new Set<GatewaySubject>([
      ...("python" in baseline ? [] : (["baseline", "ceiling"] as const)),
      ...(pinned ? [] : (["gateway-uint8-2-cores"] as const)),
    ]);
    const steps = planGateway(loads, rounds, excluded);
    const runs = await runGateway(
      {
        serverCommand: [process.execPath, await compiledServer(onProgress)],
        ...("python" in baseline && { python: baseline.python }),
        ...{ images, pinned, warmupSeconds, seconds, signal },
      },
      steps,
      (run, index) => onProgress(`${index + 1}/${steps.length}  ${runLine(run)}`),
    );
    const record: GatewayRecord = {
      schema: gatewayRecordVersion,
      kind: "bench-gateway",
      startedAt,
      finishedAt: new Date().toISOString(),
      subject: {
        ...(await describeCommit(project)),
        machine: describeMachine(),
        model: defaultModel.name,
        baseline:
          "python" in baseline ? { packages: baseline.packages } : { reason: baseline.reason },
        pinned,
        images: [...images].map(([kind, files]) => ({
          kind,
          bytes: files.map(({ length }) => length),
        })),
        settings: { rounds, seconds, warmupSeconds, loads: loads.map(({ id }) => id) },
      },
      runs: [...runs],
    };
    const name = reportName(record.startedAt, "bench-gateway");
    const json = `${JSON.stringify(record)}\n`;
    const saved = saveReports(options.reports, name, json, gatewayReport(record));
    const missed = gatewayResults(compareGateway(record)).filter(({ passed }) => !passed);
    return { record, missedTargets: missed.length, saved };
  } catch (error) {
    if (signal.aborted) throw new Interrupted("nothing is left running", { cause: error });
    throw error;
  } finally {
    interrupt.remove();
  }
}

function chooseLoads(only: readonly string[]): readonly GatewayLoad[] {
  const names = gatewayLoads.map(({ id }) => id);
  const unknown = only.find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new UserError(`--only must be of ${names.join(", ")}, got '${unknown}'`);
  }
  return gatewayLoads.filter(({ id }) => only.length === 0 || only.includes(id));
}

/** Returns whether subjects and their Triton can be bound to different cores. */
async function canPin(): Promise<boolean> {
  if (availableParallelism() < 2) return false;
  const result = await runProgram("taskset", ["--cpu-list", "0,1", "true"], { timeoutMs: 5_000 });
  return result.outcome !== "missing" && result.exitCode === 0;
}

function runLine({ load, subject, round, cpuMsPerImage, latency, failures }: GatewayRun): string {
  const times =
    latency === undefined
      ? ""
      : `, p50 ${latency.p50Ms.toFixed(1)} ms, p95 ${latency.p95Ms.toFixed(1)} ms, p99 ${latency.p99Ms.toFixed(1)} ms`;
  const failed = Object.entries(failures).map(([code, count]) => `, ${count} × ${code}`);
  return `round ${round}  ${load.padEnd(10)} ${subject.padEnd(21)}  ${cpuMsPerImage.toFixed(2)} ms of processor time per image${times}${failed.join("")}`;
}

interface Arguments {
  readonly rounds: number;
  readonly seconds: number;
  readonly only?: readonly string[];
  readonly quick?: true;
  readonly baseline: boolean;
  readonly strict?: true;
  readonly report: string;
  readonly json?: true;
}

/** Options of `--quick`, a smoke test. */
const quick = { rounds: 1, seconds: 1, only: ["thumbnails"] } as const;

/** Declares `npm run lab -- gateway`. */
export function registerBenchGateway(command: Command): void {
  command
    .description(
      "measure the embed server in front of a Triton that computes nothing: processor time per image and images per second and core, " +
        "compared with FastAPI, Pillow and tritonclient (baseline) and with libjpeg-turbo alone (ceiling), in alternating rounds",
    )
    .option("--rounds <number>", "number of rounds", integer, 5)
    .option(
      "--seconds <number>",
      "length of a measurement in seconds, after its warm-up",
      secondsOf,
      4,
    )
    .option("--only <loads...>", `loads to measure: ${gatewayLoads.map(({ id }) => id).join(", ")}`)
    .option("--quick", "smoke test: thumbnails, one round, one second")
    .option("--no-baseline", "skip baseline and ceiling, which require Python and their packages")
    .option("--strict", "exit with 1 if a target is missed")
    .addOption(
      new Option("--report <folder>", "folder for the record and the reports").default(
        resolve(project, "bench/reports"),
        "bench/reports",
      ),
    )
    .option("--json", "print only the record on stdout")
    .addHelpText(
      "after",
      `
Examples:
  $ npm run lab -- gateway
  $ npm run lab -- gateway --only thumbnails --rounds 3
  $ npm run lab -- gateway --quick --no-baseline

Exit codes: 0 success, 1 failure (with --strict also a missed target), 2 wrong usage.`,
    )
    .action(run);
}

async function run(args: Arguments): Promise<void> {
  const { rounds, seconds } = args.quick ? quick : args;
  try {
    const { record, missedTargets, saved } = await benchGateway({
      rounds,
      seconds,
      only: args.only ?? (args.quick ? quick.only : []),
      baseline: args.baseline,
      reports: resolve(args.report),
      onProgress: (line) => console.error(line),
    });
    console.log(
      args.json ? JSON.stringify(record, null, 2) : `\n${renderText(gatewayReport(record))}`,
    );
    console.error(`record: ${relative("", saved.json)}\nreport: ${relative("", saved.html)}`);
    if (args.strict && missedTargets > 0) process.exitCode = 1;
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    console.error(`clipstack: interrupted; ${error.message}`);
    process.exitCode = error.exitCode;
  }
}
