import type { VectorType } from "../../contract/bulk.ts";
import { sha256 } from "../../contract/fingerprint.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import { readText, type Store } from "../store/store.ts";
import { type BulkJob, bulkJob, keys, type ManifestEntry, parseFile, readManifest } from "./job.ts";

export interface PlanOptions {
  /** Location of the job's files. */
  readonly store: Store;
  readonly source: string;
  readonly entries: AsyncIterable<ManifestEntry>;
  readonly model: ModelSpec;
  readonly vectors: VectorType;
  /** Maximum images of a shard. */
  readonly shardImages: number;
  /** Maximum bytes of a shard's images; a single image may be larger. */
  readonly shardBytes: number;
  readonly usdPerWorkerHour?: number;
  /** Identity of the run that plans. */
  readonly run?: string;
}

/** Changes by a plan, in manifest entries. */
export interface PlanResult {
  readonly job: BulkJob;
  readonly entries: number;
  readonly bytes: number;
  readonly added: number;
  /** With another etag than in the previous plan. */
  readonly changed: number;
  readonly removed: number;
}

/**
 * Plans a job, or plans it again: unchanged shards stay, shards with changed or removed images get another manifest, and
 * new images get new shards.
 *
 * @throws {UserError} if the folder is that of the images, or has a job of another source, model or type of vectors
 */
export async function planJob(options: PlanOptions): Promise<PlanResult> {
  const { store, source, entries, model, vectors, usdPerWorkerHour, run } = options;
  if (store.address === withoutSlash(source)) {
    throw new UserError(
      `${store.address}: the job must not be the folder of the images; choose another one, such as ${store.address}-job`,
    );
  }
  const text = await readText(store, keys.job);
  const before =
    text === undefined ? undefined : parseFile(bulkJob, text, `${store.address}/${keys.job}`);
  if (before !== undefined) requireSameJob(before, options);
  const writer = new ShardWriter(options, before?.shards.length ?? 0);
  const counts = { added: 0, changed: 0, removed: 0 };
  const kept: BulkJob["shards"][number][] = [];
  if (before === undefined) {
    for await (const entry of entries) {
      counts.added += 1;
      await writer.add(entry);
    }
  } else {
    const listed = new Map<string, ManifestEntry>();
    for await (const entry of entries) listed.set(entry.uri, entry);
    // such as a folder that is not mounted: the table keeps its rows
    if (listed.size === 0) throw noImages(source);
    for (const [index, shard] of before.shards.entries()) {
      kept.push(await updatedShard(options, before, index, listed, counts, shard));
    }
    counts.added = listed.size;
    for (const entry of listed.values()) await writer.add(entry);
  }
  const shards = [...kept, ...(await writer.end())];
  if (shards.length === 0) throw noImages(source);
  const plannedAt = new Date().toISOString();
  const facts = { plannedAt, run, source, model, vectors, usdPerWorkerHour };
  const job: BulkJob = { schema: 1, ...facts, shards };
  await store.write(keys.job, `${JSON.stringify(job)}\n`);
  for (const [index, { hash }] of kept.entries()) {
    const old = before!.shards[index]!.hash;
    if (old !== hash) await store.remove(keys.manifest(index, old));
  }
  const sum = (of: (shard: BulkJob["shards"][number]) => number) =>
    shards.reduce((total, shard) => total + of(shard), 0);
  return {
    job,
    entries: sum((shard) => shard.entries),
    bytes: sum(({ bytes }) => bytes),
    ...counts,
  };
}

function requireSameJob(job: BulkJob, { store, source, model, vectors }: PlanOptions): void {
  const facts = [
    ["source", withoutSlash(job.source), withoutSlash(source)],
    ["model", JSON.stringify(job.model), JSON.stringify(model)],
    ["vectors", job.vectors, vectors],
  ] as const;
  for (const [name, existing, requested] of facts) {
    if (existing === requested) continue;
    const [is, got] =
      name === "model" ? [job.model.name, model.name] : ([existing, requested] as const);
    const other = is === got ? " of another version" : "";
    throw new UserError(
      `${store.address}: ${name} must be '${is}', as in the existing job, got '${got}'${other}; choose another folder for another job`,
    );
  }
}

const withoutSlash = (location: string) => location.replace(/\/$/, "");

/** Writes another manifest if a listed entry differs or is gone. Removes the entries of the shard from `listed`. */
async function updatedShard(
  { store }: PlanOptions,
  job: BulkJob,
  index: number,
  listed: Map<string, ManifestEntry>,
  counts: { changed: number; removed: number },
  shard: BulkJob["shards"][number],
): Promise<BulkJob["shards"][number]> {
  const before = await readManifest(store, job, index);
  const now = before.flatMap(({ uri, etag }) => {
    const entry = listed.get(uri);
    listed.delete(uri);
    if (entry === undefined) counts.removed += 1;
    else if (entry.etag !== etag) counts.changed += 1;
    return entry ?? [];
  });
  const isSame = now.length === before.length && now.every((e, at) => e.etag === before[at]!.etag);
  if (isSame) return shard;
  const updated = await writeManifest(store, index, now);
  // of an earlier plan with the same images: the part has changed since
  await store.remove(keys.record(index, updated.hash));
  return updated;
}

async function writeManifest(store: Store, index: number, entries: readonly ManifestEntry[]) {
  const text = entries.map((entry) => `${JSON.stringify(entry)}\n`).join("");
  const hash = sha256(text).slice(0, 16);
  await store.write(keys.manifest(index, hash), text);
  const bytes = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  return { entries: entries.length, bytes, hash };
}

/** Groups entries into shards in their order, with one shard in memory. */
class ShardWriter {
  readonly #options: PlanOptions;
  readonly #first: number;
  readonly #shards: BulkJob["shards"][number][] = [];
  #entries: ManifestEntry[] = [];
  #bytes = 0;

  constructor(options: PlanOptions, first: number) {
    this.#options = options;
    this.#first = first;
  }

  async add(entry: ManifestEntry): Promise<void> {
    const { shardImages, shardBytes } = this.#options;
    const isFull = this.#entries.length === shardImages || this.#bytes + entry.bytes > shardBytes;
    if (isFull && this.#entries.length > 0) await this.#flush();
    this.#entries.push(entry);
    this.#bytes += entry.bytes;
  }

  async end(): Promise<readonly BulkJob["shards"][number][]> {
    if (this.#entries.length > 0) await this.#flush();
    return this.#shards;
  }

  async #flush(): Promise<void> {
    const index = this.#first + this.#shards.length;
    this.#shards.push(await writeManifest(this.#options.store, index, this.#entries));
    this.#entries = [];
    this.#bytes = 0;
  }
}

const noImages = (source: string) =>
  new UserError(`${source}: must exist and contain images, got none`);
