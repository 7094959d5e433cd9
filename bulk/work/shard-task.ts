import { hostname } from "node:os";
import { UserError } from "../../contract/user-error.ts";
import {
  type BulkJob,
  isStale,
  keys,
  readJson,
  readManifest,
  type ShardClaim,
  type ShardRecord,
  shardClaim,
} from "../job/job.ts";
import type { SourceImage, SourceReader } from "../job/source.ts";
import { readText, type Store, StoreError } from "../store/store.ts";
import {
  type EmbeddedImage,
  failuresBytes,
  type ImageFailure,
  partBytes,
  readPart,
} from "../table/part.ts";
import { type ImageProblem, type ImageResult, type Pipeline, problemOf } from "./pipeline.ts";

export interface ShardContext {
  readonly store: Store;
  readonly job: BulkJob;
  readonly reader: SourceReader;
  readonly pipeline: Pipeline;
  readonly fingerprint: string;
  /** Index of this worker. */
  readonly worker: number;
  readonly staleSeconds: number;
  /** Aborted when the worker stops; a shard with too many errors must not count as done. */
  readonly signal: AbortSignal;
  /** Called for each image with a result. */
  onImage(problem: ImageProblem | undefined, bytes: number): void;
}

/** Shard that this worker has claimed. */
export class ShardTask {
  readonly shard: number;
  readonly #context: ShardContext;
  readonly #startedAt = new Date().toISOString();
  #beatAt = this.#startedAt;
  #images = 0;
  /** {@link #images} at the last heartbeat. */
  #beatImages = 0;
  #bytesRead = 0;
  #claimWritten: Promise<void> = Promise.resolve();
  #isReleased = false;

  private constructor(shard: number, context: ShardContext) {
    this.shard = shard;
    this.#context = context;
  }

  /**
   * Claims a shard unless another worker makes progress with it. Two workers that claim it in the same moment do the same
   * work; the later part replaces the earlier one.
   */
  static async claim(shard: number, context: ShardContext): Promise<ShardTask | undefined> {
    const { store, worker, staleSeconds } = context;
    const claim = await readJson(store, keys.claim(shard), shardClaim);
    const isOfOther = claim !== undefined && claim.worker !== worker;
    if (isOfOther && !isStale(claim, staleSeconds)) return undefined;
    const task = new ShardTask(shard, context);
    await task.#writeClaim();
    // another worker may have completed it since this one listed the records
    const record = await readText(store, keys.record(shard, context.job.shards[shard]!.hash));
    if (record === undefined) return task;
    await task.release();
    return undefined;
  }

  /** Refreshes the claim if there was progress since the last call. */
  async beat(): Promise<void> {
    if (this.#isReleased || this.#images === this.#beatImages) return;
    this.#beatImages = this.#images;
    this.#beatAt = new Date().toISOString();
    await this.#writeClaim();
  }

  /** Removes the claim, after a heartbeat in progress. */
  async release(): Promise<void> {
    this.#isReleased = true;
    await this.#claimWritten.catch(() => {});
    await this.#context.store.remove(keys.claim(this.shard));
  }

  /**
   * Adds the images of the shard to the pipeline.
   *
   * @returns Resolves when the part and the record are written. The next shard can be started before.
   */
  async start(): Promise<{ readonly finished: Promise<ShardRecord> }> {
    const { store, job, reader, pipeline, signal, onImage } = this.#context;
    const entries = await readManifest(store, job, this.shard);
    const earlier = await this.#earlierRows();
    const rows: EmbeddedImage[] = [];
    const failures: ImageFailure[] = [];
    const settled: Promise<void>[] = [];
    let [reused, next] = [0, 0];
    /** Adds one image; rows keep the order of the manifest. */
    const add = async ({ uri, bytes, read }: SourceImage, etag: string) => {
      const index = next++;
      let settle = (_result: ImageResult | ImageProblem) => {};
      settled.push(
        new Promise((resolve) => {
          settle = (result) => {
            if ("code" in result) failures.push({ uri, etag, ...result });
            else {
              const { bytes: size, ...image } = result;
              this.#bytesRead += size;
              rows[index] = { uri, etag, ...image };
            }
            this.#images += 1;
            onImage("code" in result ? result : undefined, "code" in result ? 0 : result.bytes);
            resolve();
          };
        }),
      );
      await pipeline.add({ bytes, read }, settle);
    };
    for (const entry of entries) {
      const { uri, etag } = entry;
      const row = earlier.get(uri);
      if (row !== undefined && etag !== "" && row.etag === etag) {
        rows[next++] = row;
        reused += 1;
        onImage(undefined, 0);
        continue;
      }
      try {
        for await (const image of reader.images(entry)) await add(image, etag);
      } catch (error) {
        // a tar file that is missing or damaged; its other images have results
        const problem = problemOf(error);
        if (problem === undefined) throw error;
        failures.push({ uri, etag, ...problem });
        onImage(problem, 0);
      }
    }
    const finish = async () => {
      await Promise.all(settled);
      signal.throwIfAborted();
      return await this.#publish(
        rows.filter((row) => row !== undefined),
        failures,
        reused,
      );
    };
    return { finished: Promise.race([finish(), pipeline.failed]) };
  }

  /** Writes the part, then the record. */
  async #publish(
    rows: readonly EmbeddedImage[],
    failures: readonly ImageFailure[],
    reused: number,
  ): Promise<ShardRecord> {
    const { store, job, fingerprint, worker } = this.#context;
    const { hash } = job.shards[this.shard]!;
    const part = partBytes(rows, {
      fingerprint,
      model: job.model.name,
      width: job.model.embedding.width,
      vectors: job.vectors,
    });
    if (failures.length > 0) {
      await store.write(keys.errors(this.shard), failuresBytes(failures));
    } else {
      await store.remove(keys.errors(this.shard));
    }
    await store.write(keys.part(this.shard), part);
    const record: ShardRecord = {
      schema: 1,
      worker,
      host: hostname(),
      startedAt: this.#startedAt,
      finishedAt: new Date().toISOString(),
      rows: rows.length,
      reused,
      bytesRead: this.#bytesRead,
      errors: countsOf(failures.map(({ code }) => code)),
      partBytes: part.length,
      peakRssMiB: Math.round(process.resourceUsage().maxRSS / 1024),
    };
    await store.write(keys.record(this.shard, hash), `${JSON.stringify(record)}\n`);
    await this.release();
    return record;
  }

  /** Rows of a part that an earlier plan or an interrupted worker wrote, by URI. */
  async #earlierRows(): Promise<ReadonlyMap<string, EmbeddedImage>> {
    const { store, fingerprint } = this.#context;
    const key = keys.part(this.shard);
    const content = await store.read(key).catch((error: unknown) => {
      if (error instanceof StoreError && error.code === "missing") return undefined;
      throw error;
    });
    if (content === undefined) return new Map();
    const part = readPart(content);
    if (part.fingerprint !== fingerprint) {
      throw new UserError(
        `${store.address}/${key}: must have the fingerprint ${fingerprint}, got ${part.fingerprint}`,
      );
    }
    return new Map(part.rows.map((row) => [row.uri, row]));
  }

  async #writeClaim(): Promise<void> {
    const claim: ShardClaim = {
      schema: 1,
      worker: this.#context.worker,
      host: hostname(),
      startedAt: this.#startedAt,
      beatAt: this.#beatAt,
      images: this.#images,
    };
    const text = `${JSON.stringify(claim)}\n`;
    this.#claimWritten = this.#context.store.write(keys.claim(this.shard), text);
    await this.#claimWritten;
  }
}

export function countsOf(codes: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const code of codes) counts[code] = (counts[code] ?? 0) + 1;
  return counts;
}
