import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { type BulkJob, readJob } from "../../bulk/job/job.ts";
import { errorCount, jobStatus } from "../../bulk/job/status.ts";
import { openStore } from "../../bulk/store/open-store.ts";
import {
  type BulkEnv,
  type BulkVariables,
  defaultStaleSeconds,
  readBulkEnv,
} from "../../bulk/work/settings.ts";
import { runWorkerProcesses } from "../../bulk/worker-processes.ts";
import type { ModelPrecision } from "../../contract/server/server-env.ts";
import { projectRepository } from "../../model-tools/files/folders.ts";
import { counted, formatCount } from "../../report/document/number-format.ts";
import { startStatusLine } from "../../report/status-line.ts";
import { towerFile } from "../model/model-option.ts";
import { saveBulkReport } from "./bulk-report.ts";
import { progressText, statusText } from "./bulk-text.ts";

export const locationRule = "a folder or s3://bucket/prefix";

/** A folder as an absolute path; other locations unchanged. */
export function absoluteLocation(location: string): string {
  return location.includes("://") ? location : resolve(location);
}

/** Options of commands that embed. */
export interface ModelArguments {
  readonly weights?: string;
  readonly precision: ModelPrecision;
  readonly triton?: string;
  readonly memory: number;
  readonly patience: number;
}

export interface RunArguments extends ModelArguments {
  readonly workers: number;
  /** 0 to 1. */
  readonly maxErrors: number;
  readonly report?: string;
}

/** Settings of one worker in this process. */
export async function workerEnv(location: string, args: ModelArguments): Promise<BulkEnv> {
  const job = await readJob(await openStore(location));
  const variables = await variablesOf(location, args, job);
  return readBulkEnv({ ...process.env, ...variables });
}

/** Runs a job with workers on this machine and shows its progress. @returns Exit code. */
export async function runBulk(location: string, args: RunArguments): Promise<number> {
  const store = await openStore(location);
  const job = await readJob(store);
  const staleSeconds = Number(process.env.BULK_STALE_SECONDS ?? defaultStaleSeconds);
  const before = await jobStatus(store, job, staleSeconds);
  if (before.shards.done === before.shards.total) {
    console.log(`nothing to embed\n${statusText(before)}`);
    return 0;
  }
  const stop = new AbortController();
  const onSignal = () => stop.abort();
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
  let latest = { shards: 0, images: 0, errors: 0, bytes: 0 };
  const line = startStatusLine(process.stderr, () => `${formatCount(latest.errors)} errors`);
  const startedAt = performance.now();
  const remaining = before.entries - before.rows - errorCount(before.errors);
  try {
    const code = await runWorkerProcesses({
      count: args.workers,
      variables: {
        ...(await variablesOf(location, args, job, args.workers)),
        BULK_MAX_ERROR_SHARE: String(args.maxErrors),
      },
      signal: stop.signal,
      onLine: (text) => line.print(text),
      onProgress(progress) {
        latest = progress;
        const seconds = (performance.now() - startedAt) / 1000;
        const usd = job.usdPerWorkerHour && (job.usdPerWorkerHour * args.workers * seconds) / 3600;
        line.show(progressText(progress, { seconds, remaining, usd }));
      },
    });
    line.end();
    const after = await jobStatus(store, job, staleSeconds);
    console.log(statusText(after));
    if (args.report !== undefined) saveBulkReport(args.report, job, after);
    const isDone = after.shards.done === after.shards.total;
    if (code !== 0 || isDone) return code;
    console.error(
      `${counted(after.shards.running, "shard")} in progress with workers of another run: run again when they end, or ${staleSeconds} s after their latest progress`,
    );
    return 1;
  } finally {
    line.end();
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  }
}

async function variablesOf(
  location: string,
  { weights, precision, triton, memory, patience }: ModelArguments,
  { model: spec }: BulkJob,
  workers = 1,
): Promise<BulkVariables> {
  const threads = String(Math.max(1, Math.floor(availableParallelism() / workers)));
  return {
    BULK_JOB: absoluteLocation(location),
    BULK_MEMORY_MIB: String(memory),
    BULK_PATIENCE_SECONDS: String(patience),
    MODEL_PRECISION: precision,
    MODEL_REPOSITORY: process.env.MODEL_REPOSITORY ?? projectRepository,
    INTRA_OP_THREADS: process.env.INTRA_OP_THREADS ?? threads,
    PREPROCESS_THREADS: process.env.PREPROCESS_THREADS ?? threads,
    ...(triton !== undefined && { BACKEND: "triton", TRITON_GRPC_URLS: triton }),
    ...(weights !== undefined && {
      BULK_MODEL_FILE: await towerFile({ spec, modality: "image" }, weights, () => {}),
    }),
  };
}
