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
import { relative, resolve } from "node:path";
import { Interrupted } from "../../artefact/interrupt.ts";
import type { BenchRecord } from "../../bench/record/bench-record.ts";
import { benchRecordText, benchReportName } from "../../bench/record/record-text.ts";
import { benchReport } from "../../bench/report/bench-report.ts";
import { startBenchProgress } from "../../bench/run/bench-progress.ts";
import { finishBenchRecord } from "../../bench/run/compose-record.ts";
import type { Device } from "../../bench/stats/roofline.ts";
import type { Environment } from "../../contract/environment.ts";
import { gpuSpecOf } from "../../contract/gpus.ts";
import { towerOf } from "../../contract/model-shapes.ts";
import { messageOf } from "../../contract/user-error.ts";
import { reportsFolder } from "../../model-tools/files/folders.ts";
import { renderText } from "../../report/render/render-text.ts";
import { saveReports } from "../../report/save-reports.ts";
import { isStandIn } from "../../target/subject/subject.ts";
import { interruptible } from "../shared/interruptible.ts";
import { withFileErrors } from "../shared/write-output.ts";
import type { BenchArguments } from "./bench-options.ts";
import { type PreparedBench, type PrepareOptions, withPreparedBench } from "./run-bench.ts";

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
 * @returns The record and its path; undefined if nothing was measured.
 */
export async function runAndReport(
  { environments, args, measurementCount, ...options }: RunOptions,
  work: (prepared: PreparedBench) => Promise<void>,
): Promise<{ readonly record: BenchRecord; readonly path: string } | undefined> {
  requireWritable(args);
  const progress = startBenchProgress(process.stderr, measurementCount);
  const outcome = "nothing was measured, and nothing is left running";
  return interruptible(outcome, ({ signal, hold }) =>
    withPreparedBench(
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
        const finished = finishRun(prepared, args);
        return { record: finished, path: report(finished, args) };
      },
    ).finally(progress.end),
  );
}

function reportFolder({ report: folder }: BenchArguments): string {
  return resolve(folder ?? reportsFolder);
}

/** Checks that outputs can be written before measuring. */
function requireWritable(args: BenchArguments): void {
  const folder = reportFolder(args);
  withFileErrors(`--report ${args.report ?? folder}`, "written", () => {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  });
  const { output } = args;
  if (output === undefined) return;
  withFileErrors(`--output ${output}`, "written", () => {
    // existing files keep their contents; a new file is removed
    const existed = existsSync(output);
    closeSync(openSync(output, "a"));
    if (!existed) rmSync(output);
  });
}

/** @returns Path of the saved record. */
function report(record: BenchRecord, args: BenchArguments): string {
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
  return relative("", saved.json);
}
