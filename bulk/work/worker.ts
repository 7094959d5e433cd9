import { UserError } from "../../contract/user-error.ts";
import {
  type BulkJob,
  doneShards,
  jobModel,
  keys,
  readJob,
  readJson,
  singleLine,
} from "../job/job.ts";
import { openSourceReader } from "../job/source.ts";
import { openStore } from "../store/open-store.ts";
import type { Store } from "../store/store.ts";
import { openPipeline } from "./open-pipeline.ts";
import type { ImageProblem } from "./pipeline.ts";
import type { BulkEnv } from "./settings.ts";
import { ShardTask } from "./shard-task.ts";

const beatMs = 5_000;
/** Shards whose images are in the pipeline, or whose part is being written. */
const maxOpenShards = 3;
/** Errors that never stop a worker. */
const alwaysAllowedErrors = 10;

/** Counts of one worker since its start. */
export interface WorkerProgress {
  readonly shards: number;
  readonly images: number;
  readonly errors: number;
  readonly bytes: number;
}

export interface WorkerOptions {
  readonly onProgress?: (progress: WorkerProgress) => void;
  /** Stops the worker; its claims are released. */
  readonly signal?: AbortSignal;
}

/** Too many images failed, or the worker was stopped: exit code 1. */
export class WorkerError extends Error {
  override readonly name = "WorkerError";
}

/**
 * Embeds the shards of this worker, then the shards of other workers that are open or stale.
 *
 * @throws {UserError} for wrong settings, a missing job or another model
 * @throws {StoreError} if the store of the job or of the images cannot be used
 * @throws {WorkerError} if too many images failed, or after `signal`
 */
export async function runBulkWorker(
  env: BulkEnv,
  { onProgress = () => {}, signal }: WorkerOptions = {},
): Promise<WorkerProgress> {
  const store = await openStore(env.BULK_JOB, env.BULK_PATIENCE_SECONDS);
  const job = await readJob(store);
  const opened = await openPipeline(job.model, env);
  const { pipeline, fingerprint } = opened;
  const tasks = new Set<ShardTask>();
  const stop = new AbortController();
  let claiming: Promise<ShardTask | undefined> | undefined;
  const beats = setInterval(() => {
    // a failed beat is repeated by the next one; a persistent failure appears when the part is written
    for (const task of tasks) void task.beat().catch(() => {});
  }, beatMs);
  try {
    await requireFingerprint(store, fingerprint);
    const counts = { shards: 0, images: 0, errors: 0, bytes: 0 };
    const stopped = new Promise<never>((_, reject) => {
      stop.signal.addEventListener("abort", () => reject(stop.signal.reason));
    });
    stopped.catch(() => {});
    const onAbort = () => stop.abort(new WorkerError("stopped"));
    signal?.addEventListener("abort", onAbort);
    // while the model was loaded
    if (signal?.aborted) onAbort();
    const context = {
      store,
      job,
      pipeline,
      reader: openSourceReader(env.BULK_PATIENCE_SECONDS, env.BULK_MEMORY_MIB * 2 ** 20),
      fingerprint,
      worker: env.JOB_COMPLETION_INDEX,
      staleSeconds: env.BULK_STALE_SECONDS,
      signal: stop.signal,
      onImage(problem: ImageProblem | undefined, bytes: number) {
        counts.images += 1;
        counts.bytes += bytes;
        if (problem !== undefined) counts.errors += 1;
        const allowed = Math.max(alwaysAllowedErrors, env.BULK_MAX_ERROR_SHARE * counts.images);
        if (problem !== undefined && counts.errors > allowed) {
          stop.abort(
            new WorkerError(
              `${counts.errors} of ${counts.images} images failed, more than BULK_MAX_ERROR_SHARE ${env.BULK_MAX_ERROR_SHARE}; the latest: ${problem.code}: ${singleLine(problem.reason)}`,
            ),
          );
        }
        onProgress(counts);
      },
    };
    const work = async () => {
      const writing = new Set<Promise<unknown>>();
      for await (const shard of openShards(store, job, env)) {
        stop.signal.throwIfAborted();
        claiming = ShardTask.claim(shard, context);
        const task = await claiming;
        if (task === undefined) continue;
        tasks.add(task);
        stop.signal.throwIfAborted();
        const { finished } = await task.start();
        const written = finished.then(() => {
          counts.shards += 1;
          tasks.delete(task);
          writing.delete(written);
          onProgress(counts);
        });
        // the failure is thrown by the next race
        written.catch(() => {});
        writing.add(written);
        if (writing.size >= maxOpenShards) await Promise.race(writing);
      }
      await Promise.all(writing);
    };
    await Promise.race([work(), pipeline.failed, stopped]);
    return counts;
  } finally {
    clearInterval(beats);
    stop.abort();
    // adds the last task
    await claiming?.catch(() => {});
    await Promise.allSettled([...tasks].map((task) => task.release()));
    await opened.close();
  }
}

/** Own shards, then those of others from the last to the first, which their owners reach last; without those that are done. */
async function* openShards(
  store: Store,
  job: BulkJob,
  { BULK_WORKERS: workers, JOB_COMPLETION_INDEX: own }: BulkEnv,
): AsyncGenerator<number> {
  const count = job.shards.length;
  let done = await doneShards(store, job);
  await removeClaims(store, done);
  for (let shard = own; shard < count; shard += workers) if (!done.has(shard)) yield shard;
  if (workers === 1) return;
  done = await doneShards(store, job);
  for (let shard = count - 1; shard >= 0; shard--) {
    if (shard % workers !== own && !done.has(shard)) yield shard;
  }
}

/** Removes the claims of shards that are done, left by workers that were killed before they removed them. */
async function removeClaims(store: Store, done: ReadonlySet<number>): Promise<void> {
  const finished = new Set([...done].map(keys.claim));
  for await (const { key } of store.list(keys.claims)) {
    if (finished.has(key)) await store.remove(key);
  }
}

/** Sets the fingerprint of the job with the first worker. @throws {UserError} if the job has another one */
async function requireFingerprint(store: Store, fingerprint: string): Promise<void> {
  const content = `${JSON.stringify({ schema: 1, fingerprint })}\n`;
  if (await store.create(keys.model, content)) return;
  const existing = await readJson(store, keys.model, jobModel);
  if (existing?.fingerprint === fingerprint) return;
  throw new UserError(
    `${store.address}: the model must have the fingerprint ${existing?.fingerprint} of the existing vectors, got ${fingerprint}; plan another job for another model, precision or preprocessing`,
  );
}
