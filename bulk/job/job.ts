import { z } from "zod";
import { vectorTypes } from "../../contract/bulk.ts";
import { sha256 } from "../../contract/fingerprint.ts";
import { modelSpec } from "../../contract/model-spec.ts";
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";
import { readText, type Store } from "../store/store.ts";

/** Keys of a job's files, relative to its folder. */
export const keys = {
  job: "job.json",
  model: "model.json",
  manifest: (shard: number, hash: string) => `manifest/${shardName(shard)}.${hash}.jsonl`,
  claims: "claims/",
  claim: (shard: number) => `claims/${shardName(shard)}.json`,
  records: "records/",
  record: (shard: number, hash: string) => `records/${shardName(shard)}.${hash}.json`,
  parts: "parts/",
  part: (shard: number) => `parts/${shardName(shard)}.parquet`,
  errors: (shard: number) => `errors/${shardName(shard)}.parquet`,
} as const;

/** Six digits, so that names sort as numbers do. */
export const shardName = (shard: number) => String(shard).padStart(6, "0");

/** `job.json`, written last by `plan`. */
export const bulkJob = z.object({
  /** Incremented when a field changes its meaning. */
  schema: z.literal(1),
  /** UTC, ISO 8601. */
  plannedAt: z.string(),
  /** Run that planned the job, as BULK_RUN; absent for the command `plan`. */
  run: z.string().optional(),
  /** Folder, `s3://bucket/prefix`, or file with a list of URIs. */
  source: z.string(),
  model: modelSpec,
  vectors: z.enum(vectorTypes),
  /** US dollars per hour of one worker, for the cost so far. */
  usdPerWorkerHour: z.number().optional(),
  shards: z.array(
    z.object({
      /** Entries of the manifest. */
      entries: z.int(),
      bytes: z.number(),
      /** First 16 digits of the SHA-256 of the manifest. */
      hash: z.string(),
    }),
  ),
});
export type BulkJob = z.infer<typeof bulkJob>;

/** Line of a manifest: an image, or a tar file of images. */
export const manifestEntry = z.object({
  /** Absolute path, `s3://…` or `https://…`. */
  uri: z.string(),
  /** 0 if unknown. */
  bytes: z.number(),
  /** Empty if unknown. */
  etag: z.string(),
});
export type ManifestEntry = z.infer<typeof manifestEntry>;

/** `claims/<shard>.json` while a worker embeds a shard. */
export const shardClaim = z.object({
  schema: z.literal(1),
  /** Index of the worker. */
  worker: z.int(),
  host: z.string(),
  /** UTC, ISO 8601. */
  startedAt: z.string(),
  /** Time of the latest progress: a stuck worker does not refresh it. */
  beatAt: z.string(),
  /** Images with a result so far. */
  images: z.int(),
});
export type ShardClaim = z.infer<typeof shardClaim>;

/** Returns whether a worker has made no progress for the given time. A claim from the future, of another clock, is stale too. */
export function isStale(
  { beatAt }: Pick<ShardClaim, "beatAt">,
  staleSeconds: number,
  now = Date.now(),
): boolean {
  return !(Math.abs(now - Date.parse(beatAt)) <= staleSeconds * 1000);
}

/** `records/<shard>.<hash>.json`: result of a shard, written after its part. */
export const shardRecord = z.object({
  ...shardClaim.omit({ beatAt: true, images: true }).shape,
  finishedAt: z.string(),
  rows: z.int(),
  /** Rows taken from an earlier part instead of embedded. */
  reused: z.int(),
  /** Bytes of the images that were read. */
  bytesRead: z.number(),
  /** Images without a row, by code. */
  errors: z.record(z.string(), z.int()),
  partBytes: z.int(),
  /** Largest resident size of the worker so far. */
  peakRssMiB: z.int(),
});
export type ShardRecord = z.infer<typeof shardRecord>;

/** `model.json`: the identity of all vectors, set by the first worker. */
export const jobModel = z.object({ schema: z.literal(1), fingerprint: z.string() });

/** @throws {UserError} if there is no job, or its file is invalid */
export async function readJob(store: Store): Promise<BulkJob> {
  const text = await readText(store, keys.job);
  if (text === undefined) {
    throw new UserError(
      `${store.address}: must contain a job; write it with 'npx clipstack bulk plan SOURCE --job ${store.address}'`,
    );
  }
  return parseFile(bulkJob, text, `${store.address}/${keys.job}`);
}

/** @throws {UserError} if the job was planned again meanwhile */
export async function readManifest(
  store: Store,
  job: BulkJob,
  shard: number,
): Promise<readonly ManifestEntry[]> {
  const { hash } = job.shards[shard]!;
  const text = await readText(store, keys.manifest(shard, hash));
  if (text === undefined || sha256(text).slice(0, 16) !== hash) {
    throw new UserError(
      `${store.address}/${keys.manifest(shard, hash)}: must be the manifest in ${keys.job}; was the job planned again?`,
    );
  }
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as ManifestEntry);
}

/**
 * Lists the shards that are done: those with a record of the current manifest and a part.
 */
export async function doneShards(store: Store, job: BulkJob): Promise<ReadonlySet<number>> {
  const names = async (prefix: string) => {
    const found = new Set<string>();
    for await (const { key } of store.list(prefix)) found.add(key);
    return found;
  };
  const [records, parts] = await Promise.all([names(keys.records), names(keys.parts)]);
  return new Set(
    job.shards.flatMap(({ hash }, shard) =>
      records.has(keys.record(shard, hash)) && parts.has(keys.part(shard)) ? [shard] : [],
    ),
  );
}

/** Reads a claim or record; undefined if it does not exist. */
export async function readJson<T extends z.ZodType>(
  store: Store,
  key: string,
  schema: T,
): Promise<z.infer<T> | undefined> {
  const text = await readText(store, key);
  return text === undefined ? undefined : parseFile(schema, text, `${store.address}/${key}`);
}

/** Escapes control characters: a file name may contain line breaks and escape sequences. */
export function singleLine(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}

/** Parses a file of a job. */
export function parseFile<T extends z.ZodType>(schema: T, text: string, name: string): z.infer<T> {
  return parseAs(schema, parseJson(text, name), name);
}
