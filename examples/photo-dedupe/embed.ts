import { setTimeout as sleep } from "node:timers/promises";
import { ClientError } from "../../inference-image/src/client/client-error.ts";
import type { InferenceClient } from "../../inference-image/src/client/inference-client.ts";
import { maxImagesPerRequest } from "../../inference-image/src/contract/embed-api.ts";
import { backoffMs } from "./backoff.ts";
import { DedupeError, systemReason } from "./dedupe-error.ts";
import { identifyModel, isModel, type KnownModel } from "./model-identity.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { type PhotoToEmbed, photoToSend } from "./photo-to-send.ts";
import { probePicture } from "./probe.ts";
import { durationText, openProgress, type Progress } from "./progress.ts";
import { runBounded } from "./run-bounded.ts";
import type { Skipped } from "./scan.ts";
import { vectorBytes } from "./vectors.ts";

export interface EmbedOptions {
  readonly client: InferenceClient;
  /** Where the model is, for people: `embed at http://…`. */
  readonly where: string;
  /**
   * Requests in flight.
   *
   * @default 2 - while one is computed, the photos of the next are read and sent
   */
  readonly concurrency?: number;
  /**
   * How long a service that does not answer is waited for.
   *
   * @default 600
   */
  readonly waitSeconds?: number;
  /**
   * First delay before a request is sent again; later ones double.
   *
   * @default 500
   */
  readonly firstRetryMs?: number;
  /** What becomes of embeddings by another model: `refuse` to mix, or `replace` them. */
  readonly otherModel: "refuse" | "replace";
  readonly progress?: Progress;
  /** Told of each photo that cannot be embedded. */
  readonly onSkipped?: (skipped: Skipped) => void;
  /** Ends it after the requests in flight; what was embedded is kept. */
  readonly signal?: AbortSignal;
}

export interface EmbedResult {
  readonly embedded: number;
  /** Photos with the bytes of one that was embedded. */
  readonly copied: number;
  readonly failed: number;
  /** Photos that have no embedding yet. */
  readonly remaining: number;
  readonly model: KnownModel;
  readonly imagesPerSecond: number;
  readonly stopped: boolean;
}

/** Photos of a request: the probe goes with each, so that every answer shows which model gave it. */
const photosPerRequest = maxImagesPerRequest - 1;

/** Errors that pass: the service is away, or busy. */
const passing: ReadonlySet<ClientError["code"]> = new Set(["unavailable", "timeout", "overloaded"]);

/**
 * Embed every photo that has no embedding by the model that answers.
 *
 * @throws {DedupeError} when the model is another one than that of the embeddings that are there, or the service stays away
 */
export async function embed(database: PhotoDatabase, options: EmbedOptions): Promise<EmbedResult> {
  const { client, where, concurrency = 2, waitSeconds = 600, firstRetryMs } = options;
  const { otherModel, progress = openProgress(), onSkipped = () => {}, signal } = options;
  const probe = await probePicture();
  const service = patient(client, { waitSeconds, firstRetryMs, progress, signal });

  const [answer] = await service([probe]);
  const model = identifyModel(database, answer!, where);
  const others = countOthers(database, model);
  if (others > 0 && otherModel === "refuse") {
    throw new DedupeError(
      "failed",
      `${others} photos were embedded with another model than that of ${where}: use that one, or embed all again with --replace`,
    );
  }

  const startedAt = performance.now();
  const total = countPending(database, model);
  const counts = { embedded: 0, copied: copyEmbedded(database, model), failed: 0 };

  const skip = (photo: PhotoToEmbed, problem: string) => {
    counts.failed++;
    database.run("UPDATE photos SET problem = ? WHERE id = ?", [problem, photo.id]);
    onSkipped({ path: photo.path, problem });
  };

  async function embedBatch(photos: readonly PhotoToEmbed[]): Promise<void> {
    if (signal?.aborted) return;
    const batch: { readonly photo: PhotoToEmbed; readonly image: Uint8Array }[] = [];
    await runBounded(photos.entries(), 4, async ([, photo]) => {
      try {
        batch.push({ photo, image: await photoToSend(photo) });
      } catch (error) {
        skip(photo, systemReason(error));
      }
    });
    while (batch.length > 0) {
      try {
        const [seen, ...vectors] = await service([probe, ...batch.map(({ image }) => image)]);
        if (!isModel(model, seen!)) {
          throw new DedupeError(
            "failed",
            "another model answers than at the start: what it embedded was not kept",
          );
        }
        database.transaction(() => {
          for (const [i, { photo }] of batch.entries()) {
            writeEmbedding(database, model, photo, vectorBytes(vectors[i]!));
          }
        });
        counts.embedded += batch.length;
        break;
      } catch (error) {
        const at = error instanceof ClientError ? (error.image ?? 0) - 1 : -1;
        if (!(error instanceof ClientError) || error.code !== "image" || at < 0) throw error;
        const [unread] = batch.splice(at, 1);
        skip(unread!.photo, error.problem.replace(/^image \d+ /, ""));
      }
    }
    progress.update(() => progressText(counts, total, startedAt));
  }

  try {
    await runBounded(batchesOf(database, model, signal), concurrency, embedBatch);
  } catch (error) {
    if (!signal?.aborted) throw error;
  } finally {
    progress.end();
    counts.copied += copyEmbedded(database, model);
  }
  const seconds = (performance.now() - startedAt) / 1000;
  return {
    ...counts,
    remaining: countPending(database, model),
    model,
    imagesPerSecond: counts.embedded / seconds,
    stopped: signal?.aborted === true,
  };
}

function progressText(
  { embedded, copied, failed }: { embedded: number; copied: number; failed: number },
  total: number,
  startedAt: number,
): string {
  const done = embedded + copied + failed;
  const perSecond = done / ((performance.now() - startedAt) / 1000);
  const left = durationText((total - done) / perSecond);
  return `${done} of ${total} photos, ${perSecond.toFixed(1)} images/s, ${left} left`;
}

/** The client, with a service that is away waited for. */
function patient(
  client: InferenceClient,
  options: {
    readonly waitSeconds: number;
    readonly firstRetryMs: number | undefined;
    readonly progress: Progress;
    readonly signal: AbortSignal | undefined;
  },
): (images: readonly Uint8Array[]) => Promise<readonly Float32Array[]> {
  const { waitSeconds, firstRetryMs, progress, signal } = options;
  /** When the service was first seen to be away; all requests share it. */
  let awaySince: number | undefined;

  return async (images) => {
    for (let attempt = 0; ; attempt++) {
      try {
        const vectors = await client.embed(images);
        if (awaySince !== undefined) progress.note("the service answers again");
        awaySince = undefined;
        return vectors;
      } catch (error) {
        if (!(error instanceof ClientError) || !passing.has(error.code)) throw error;
        if (awaySince === undefined) {
          progress.note(`${error.problem}: waiting for up to ${durationText(waitSeconds)}`);
          awaySince = performance.now();
        }
        const delayMs = backoffMs(attempt, { firstMs: firstRetryMs });
        if (performance.now() + delayMs > awaySince + waitSeconds * 1000) {
          throw new DedupeError(
            "failed",
            `${error.problem}: gave up after ${durationText(waitSeconds)}; what was embedded is kept, run the same command again to go on`,
            { cause: error },
          );
        }
        await sleep(delayMs, undefined, { signal });
      }
    }
  };
}

const pendingSql = `
  FROM photos p LEFT JOIN embeddings e ON e.photo_id = p.id AND e.md5 = p.md5 AND e.model_id = ?
  WHERE p.state = 'present' AND e.photo_id IS NULL`;

function countPending(database: PhotoDatabase, model: KnownModel): number {
  return database.get<{ readonly n: number }>(`SELECT count(*) AS n ${pendingSql}`, [model.id])!.n;
}

function countOthers(database: PhotoDatabase, model: KnownModel): number {
  return database.get<{ readonly n: number }>(
    `SELECT count(*) AS n FROM embeddings e JOIN photos p ON p.id = e.photo_id
     WHERE p.state = 'present' AND e.model_id <> ?`,
    [model.id],
  )!.n;
}

/** Photos without an embedding, a request's worth at a time; of several with the same bytes the first. */
function* batchesOf(
  database: PhotoDatabase,
  model: KnownModel,
  signal: AbortSignal | undefined,
): Generator<readonly PhotoToEmbed[]> {
  const taken = new Set<string>();
  let after = 0;
  let batch: PhotoToEmbed[] = [];
  while (!signal?.aborted) {
    const photos = database.all<PhotoToEmbed>(
      `SELECT p.id, p.path, p.md5, p.format, p.width, p.height ${pendingSql} AND p.id > ? ORDER BY p.id LIMIT 100`,
      [model.id, after],
    );
    if (photos.length === 0) break;
    for (const photo of photos) {
      after = photo.id;
      if (taken.has(photo.md5)) continue;
      taken.add(photo.md5);
      batch.push(photo);
      if (batch.length === photosPerRequest) {
        yield batch;
        batch = [];
      }
    }
  }
  if (batch.length > 0) yield batch;
}

/** Photos with the bytes of an embedded one take over its embedding. @returns How many did. */
function copyEmbedded(database: PhotoDatabase, model: KnownModel): number {
  for (let copied = 0; ; ) {
    const copies = database.all<PhotoToEmbed & { readonly vector: Uint8Array }>(
      `SELECT p.*, (SELECT vector FROM embeddings WHERE md5 = p.md5 AND model_id = ?) AS vector ${pendingSql}
       AND EXISTS (SELECT 1 FROM embeddings WHERE md5 = p.md5 AND model_id = ?) LIMIT 500`,
      [model.id, model.id, model.id],
    );
    if (copies.length === 0) return copied;
    database.transaction(() => {
      for (const { vector, ...photo } of copies) writeEmbedding(database, model, photo, vector);
    });
    copied += copies.length;
  }
}

function writeEmbedding(
  database: PhotoDatabase,
  model: KnownModel,
  photo: PhotoToEmbed,
  vector: Uint8Array,
): void {
  database.run(
    "INSERT OR REPLACE INTO embeddings (photo_id, model_id, md5, vector) VALUES (?, ?, ?, ?)",
    [photo.id, model.id, photo.md5, vector],
  );
  database.run("UPDATE photos SET problem = NULL WHERE id = ?", [photo.id]);
}
