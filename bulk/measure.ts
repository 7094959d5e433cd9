import { doneShards, readJob, readManifest } from "./job/job.ts";
import { openSourceReader } from "./job/source.ts";
import { openStore } from "./store/open-store.ts";
import { openPipeline } from "./work/open-pipeline.ts";
import type { BulkEnv } from "./work/settings.ts";

export interface MeasuredRate {
  /** Time per image of each batch after the warm-up, in seconds. */
  readonly secondsPerImage: readonly number[];
  /** Entries of the shards that are not done. */
  readonly remaining: number;
}

/** Batches in which code is compiled and memory allocated. */
const warmupBatches = 2;
const minBatches = 4;
/** Members of one tar file in a row. */
const maxMembers = 64;

/**
 * Embeds random images of a job in this process, as one worker, and discards the results.
 *
 * @param seconds - Length of the measurement after its warm-up; at least four batches are measured.
 * @throws {UserError} as a worker
 */
export async function measureRate(env: BulkEnv, seconds: number): Promise<MeasuredRate> {
  const store = await openStore(env.BULK_JOB, env.BULK_PATIENCE_SECONDS);
  const job = await readJob(store);
  const done = await doneShards(store, job);
  let remaining = 0;
  const open = job.shards.flatMap(({ entries }, shard) => {
    if (done.has(shard)) return [];
    remaining += entries;
    return [{ shard, end: remaining }];
  });
  if (remaining === 0) return { secondsPerImage: [], remaining };
  const opened = await openPipeline(job.model, env);
  const { pipeline, batchSize } = opened;
  const reader = openSourceReader(env.BULK_PATIENCE_SECONDS, env.BULK_MEMORY_MIB * 2 ** 20);
  const batchAt: number[] = [];
  let settled = 0;
  const isComplete = () =>
    batchAt.length > warmupBatches + minBatches &&
    batchAt.at(-1)! - batchAt[warmupBatches]! > seconds;
  const settle = () => {
    settled += 1;
    if (settled % batchSize === 0) batchAt.push(performance.now() / 1000);
  };
  const work = async () => {
    while (!isComplete()) {
      // a shard is as likely as it has entries
      const at = Math.random() * remaining;
      const { shard } = open.find(({ end }) => at < end)!;
      const manifest = await readManifest(store, job, shard);
      const sample = Array.from(
        { length: Math.min(maxMembers, manifest.length) },
        () => manifest[Math.floor(Math.random() * manifest.length)]!,
      );
      for (const entry of sample) {
        let members = 0;
        for await (const image of reader.images(entry)) {
          await pipeline.add(image, settle);
          members += 1;
          if (isComplete() || members === maxMembers) break;
        }
      }
    }
  };
  try {
    await Promise.race([work(), pipeline.failed]);
  } finally {
    await opened.close();
  }
  const measured = batchAt.slice(warmupBatches);
  return {
    secondsPerImage: measured.slice(1).map((at, index) => (at - measured[index]!) / batchSize),
    remaining,
  };
}
