import { mapConcurrently } from "../../inference/threads/map-concurrently.ts";
import type { Store } from "../store/store.ts";
import {
  type BulkJob,
  doneShards,
  isStale,
  keys,
  readJson,
  type ShardClaim,
  type ShardRecord,
  shardClaim,
  shardRecord,
} from "./job.ts";

/** State of a job, from its records and claims alone. */
export interface JobStatus {
  readonly shards: {
    readonly total: number;
    readonly done: number;
    /** Claimed by a worker that makes progress. */
    readonly running: number;
    /** Claimed by a worker without progress for the given time. */
    readonly stale: number;
  };
  /** Entries of the manifests; a tar file is one. */
  readonly entries: number;
  /** Images with a row. */
  readonly rows: number;
  readonly reused: number;
  /** Images without a row, by code. */
  readonly errors: Readonly<Record<string, number>>;
  readonly bytesRead: number;
  readonly workers: readonly WorkerStatus[];
  /** Rate of all workers that make progress; 0 without any. */
  readonly imagesPerSecond: number;
  /** Absent without progress. */
  readonly secondsLeft?: number;
  /** US dollars so far; absent if the plan has no price. */
  readonly usd?: number;
  readonly records: readonly DoneShard[];
}

export interface DoneShard extends ShardRecord {
  readonly shard: number;
}

export interface WorkerStatus {
  readonly worker: number;
  readonly host: string;
  readonly shards: number;
  /** Embedded by this worker, shards in progress included. */
  readonly images: number;
  /** Time in which it embedded. */
  readonly seconds: number;
  /** UTC, ISO 8601. */
  readonly lastProgressAt: string;
  readonly state: "running" | "stale" | "idle";
  readonly peakRssMiB: number;
}

export async function jobStatus(
  store: Store,
  job: BulkJob,
  staleSeconds: number,
): Promise<JobStatus> {
  const done = await doneShards(store, job);
  // a worker that was killed may leave the claim of a shard that is done
  const finished = new Set([...done].map(keys.claim));
  const claimKeys: string[] = [];
  for await (const { key } of store.list(keys.claims)) {
    if (!finished.has(key)) claimKeys.push(key);
  }
  const [records, claims] = await Promise.all([
    mapConcurrently([...done], 32, async (shard) => {
      const key = keys.record(shard, job.shards[shard]!.hash);
      return { shard, ...(await readJson(store, key, shardRecord))! };
    }),
    mapConcurrently(claimKeys, 32, (key) => readJson(store, key, shardClaim)),
  ]);
  return statusOf(
    job,
    records,
    claims.filter((claim) => claim !== undefined),
    staleSeconds,
  );
}

export function statusOf(
  job: BulkJob,
  records: readonly DoneShard[],
  claims: readonly ShardClaim[],
  staleSeconds: number,
  now = Date.now(),
): JobStatus {
  const isFresh = (claim: ShardClaim) => !isStale(claim, staleSeconds, now);
  const sum = <T>(items: readonly T[], of: (item: T) => number) =>
    items.reduce((total, item) => total + of(item), 0);
  const errors: Record<string, number> = {};
  for (const record of records) {
    for (const [code, count] of Object.entries(record.errors)) {
      errors[code] = (errors[code] ?? 0) + count;
    }
  }
  const indices = new Set([...records, ...claims].map(({ worker }) => worker));
  const workers = [...indices]
    .sort((a, b) => a - b)
    .map((worker) => {
      const own = records.filter((record) => record.worker === worker);
      const open = claims.filter((claim) => claim.worker === worker);
      return workerStatus(worker, own, open, open.some(isFresh));
    });
  const running = claims.filter(isFresh).length;
  const entries = sum(job.shards, (shard) => shard.entries);
  const imagesPerSecond = sum(workers, ({ state, images, seconds }) =>
    state === "running" && seconds > 0 ? images / seconds : 0,
  );
  const left =
    entries -
    sum(records, ({ shard }) => job.shards[shard]!.entries) -
    sum(claims, (c) => c.images);
  return {
    shards: {
      total: job.shards.length,
      done: records.length,
      running,
      stale: claims.length - running,
    },
    entries,
    rows: sum(records, ({ rows }) => rows),
    reused: sum(records, ({ reused }) => reused),
    errors,
    bytesRead: sum(records, ({ bytesRead }) => bytesRead),
    workers,
    imagesPerSecond,
    ...(imagesPerSecond > 0 && { secondsLeft: Math.max(0, left) / imagesPerSecond }),
    ...(job.usdPerWorkerHour !== undefined && {
      usd: (sum(workers, ({ seconds }) => seconds) / 3600) * job.usdPerWorkerHour,
    }),
    records,
  };
}

function workerStatus(
  worker: number,
  records: readonly DoneShard[],
  claims: readonly ShardClaim[],
  isRunning: boolean,
): WorkerStatus {
  const spans = [
    ...records.map(({ startedAt, finishedAt }) => [startedAt, finishedAt] as const),
    ...claims.map(({ startedAt, beatAt }) => [startedAt, beatAt] as const),
  ].map(([from, to]) => [Date.parse(from), Date.parse(to)] as const);
  const images = [...records.map(imagesOf), ...claims.map((claim) => claim.images)];
  return {
    worker,
    host: [...claims, ...records][0]!.host,
    shards: records.length,
    images: images.reduce((total, count) => total + count, 0),
    seconds: coveredMs(spans) / 1000,
    lastProgressAt: new Date(Math.max(...spans.map(([, to]) => to))).toISOString(),
    state: isRunning ? "running" : claims.length > 0 ? "stale" : "idle",
    peakRssMiB: Math.max(0, ...records.map(({ peakRssMiB }) => peakRssMiB)),
  };
}

/** Images without a row, of all codes. */
export function errorCount(errors: Readonly<Record<string, number>>): number {
  return Object.values(errors).reduce((total, count) => total + count, 0);
}

/** Images of a shard that were read, with or without a result. */
export function imagesOf({ rows, reused, errors }: ShardRecord): number {
  return rows - reused + errorCount(errors);
}

/** Length of the union of intervals, because the shards of a worker overlap. */
export function coveredMs(spans: readonly (readonly [from: number, to: number])[]): number {
  let covered = 0;
  let end = Number.NEGATIVE_INFINITY;
  for (const [from, to] of [...spans].sort(([a], [b]) => a - b)) {
    covered += Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
  }
  return covered;
}
