import { messageOf, UserError } from "../contract/user-error.ts";
import { planRun } from "./work/plan-run.ts";
import { readBulkEnv } from "./work/settings.ts";
import { runBulkWorker, type WorkerProgress } from "./work/worker.ts";

const logMs = 30_000;
const sendMs = 250;

/** Message of a worker to the process that forked it. */
export interface WorkerMessage {
  readonly progress: WorkerProgress;
}

/**
 * Runs a worker until the job has no more shards for it. Logs one line per 30 s, or sends messages to a parent. Exit code: 0 done, 1 failed (run again to resume), 2 wrong
 * settings, 143 stopped.
 */
export async function runWorkerProcess(
  variables: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  const stop = new AbortController();
  let stopCode = 1;
  for (const [signal, code] of [
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const) {
    process.once(signal, () => {
      stopCode = code;
      stop.abort();
    });
  }
  let latest: WorkerProgress = { shards: 0, images: 0, errors: 0, bytes: 0 };
  const isChild = process.send !== undefined;
  const report = () => {
    if (isChild) process.send?.({ progress: latest } satisfies WorkerMessage);
    else process.stderr.write(`${progressText(latest)}\n`);
  };
  const timer = setInterval(report, isChild ? sendMs : logMs);
  try {
    const env = readBulkEnv(variables);
    await planRun(env, { signal: stop.signal });
    await runBulkWorker(env, {
      signal: stop.signal,
      onProgress: (progress) => {
        latest = progress;
      },
    });
    report();
    process.exitCode = 0;
  } catch (error) {
    report();
    process.stderr.write(`${messageOf(error)}\n`);
    process.exitCode = stop.signal.aborted ? stopCode : isUserError(error) ? 2 : 1;
  } finally {
    clearInterval(timer);
    if (isChild) process.disconnect();
  }
  // a read that is still pending would keep the process alive
  setTimeout(() => process.exit(), 1_000).unref();
}

function progressText({ shards, images, errors }: WorkerProgress): string {
  return `${shards} shards, ${images} images, ${errors} errors`;
}

/** Returns whether settings or files of the user caused the error. */
function isUserError(error: unknown): boolean {
  return error instanceof UserError || (error as { code?: unknown }).code === "model";
}
