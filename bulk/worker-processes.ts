import { type ChildProcess, fork } from "node:child_process";
import { createInterface } from "node:readline";
import { nodeProgram } from "../model-tools/files/folders.ts";
import type { BulkVariables } from "./work/settings.ts";
import type { WorkerProgress } from "./work/worker.ts";
import type { WorkerMessage } from "./worker-process.ts";

/** Restarts of one worker that a signal ended, for example for lack of memory. */
const maxRestarts = 3;

export interface WorkerProcessesOptions {
  readonly count: number;
  /** Variables of every worker, in addition to those of this process. */
  readonly variables: BulkVariables;
  /** Receives the sum over all workers. */
  readonly onProgress: (progress: WorkerProgress) => void;
  /** Receives lines that a worker logs. */
  readonly onLine: (line: string) => void;
  /** Stops all workers. */
  readonly signal?: AbortSignal;
}

/**
 * Runs workers as processes of this machine until the job is done.
 *
 * @returns Highest exit code of a worker; 1 if a signal ended it.
 */
export async function runWorkerProcesses(options: WorkerProcessesOptions): Promise<number> {
  const progress = new Map<string, WorkerProgress>();
  const onMessage = (run: string, latest: WorkerProgress) => {
    progress.set(run, latest);
    const sum = { shards: 0, images: 0, errors: 0, bytes: 0 };
    for (const one of progress.values()) {
      for (const name of Object.keys(sum) as (keyof WorkerProgress)[]) sum[name] += one[name];
    }
    options.onProgress(sum);
  };
  const codes = Array.from({ length: options.count }, (_, index) =>
    runWorker(index, options, onMessage),
  );
  return Math.max(...(await Promise.all(codes)));
}

async function runWorker(
  index: number,
  { count, variables, onLine, signal }: WorkerProcessesOptions,
  onMessage: (run: string, progress: WorkerProgress) => void,
): Promise<number> {
  for (let restarts = 0; ; restarts++) {
    const command = nodeProgram("bulk/main");
    const child = fork(command.at(-1)!, {
      execArgv: command.slice(0, -1),
      env: {
        ...process.env,
        ...variables,
        BULK_WORKERS: String(count),
        JOB_COMPLETION_INDEX: String(index),
      },
      stdio: ["ignore", "inherit", "pipe", "ipc"],
      // Ctrl-C reaches this process only, which stops the workers
      detached: true,
    });
    const stop = () => child.kill("SIGTERM");
    signal?.addEventListener("abort", stop);
    createInterface({ input: child.stderr! }).on("line", (line) =>
      onLine(count === 1 ? line : `worker ${index}: ${line}`),
    );
    child.on("message", (message: WorkerMessage) =>
      onMessage(`${index}.${restarts}`, message.progress),
    );
    const { code, by } = await ended(child);
    signal?.removeEventListener("abort", stop);
    if (code !== null) return code;
    if (signal?.aborted || restarts === maxRestarts) return 1;
    onLine(`worker ${index} was ended by ${by} and is started again`);
  }
}

function ended(
  child: ChildProcess,
): Promise<{ readonly code: number | null; readonly by: string | null }> {
  return new Promise((resolve) => child.once("close", (code, by) => resolve({ code, by })));
}
