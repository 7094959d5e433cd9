import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { ClientError, type InferenceClient, maxImagesPerRequest } from "@clipstack/client";
import pMap from "p-map";
import pRetry from "p-retry";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { type IndexModel, probePicture, useModel, type Weights } from "./index-model.ts";
import { heic, openPhoto } from "./open-photo.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";

export interface EmbedOptions {
  readonly client: InferenceClient;
  /** Name of the model's spec. */
  readonly model: string;
  /** Location of the model, for messages, such as `embed at http://…`. */
  readonly location: string;
  /** Maximum time to retry while the service is unavailable. */
  readonly waitSeconds: number;
  /** Whether embeddings by other weights of the model are replaced; otherwise they are an error. */
  readonly replace: boolean;
  /** Receives a line for each photo that cannot be embedded. */
  readonly progress?: Progress;
  /** Stops after the current batch; the index keeps all embeddings so far. */
  readonly signal?: AbortSignal;
}

export interface EmbedResult {
  readonly embedded: number;
  readonly failed: number;
  /** Photos without an embedding. */
  readonly remaining: number;
  readonly weights: Weights;
  readonly imagesPerSecond: number;
  readonly stopped: boolean;
}

interface PendingPhoto {
  readonly path: string;
  readonly md5: string;
  readonly format: string;
  readonly width: number;
  readonly height: number;
}

interface LoadedPhoto {
  readonly photo: PendingPhoto;
  readonly image: Uint8Array | Error;
}

/** Every request starts with the probe, because the model can change: by a redeployment, or by the fallback of the mode `auto`. */
const photosPerRequest = maxImagesPerRequest - 1;
/** Photos per call of the client, which keeps two requests in flight. */
const batchSize = 2 * photosPerRequest;

const transient: ReadonlySet<ClientError["code"]> = new Set([
  "unavailable",
  "timeout",
  "overloaded",
]);

/** Sends images to the service, and verifies that it runs the index's model. */
type Send = (images: readonly Uint8Array[]) => Promise<readonly Float32Array[]>;

/**
 * Embeds every photo without an embedding by the model. Photos with the same bytes are embedded once.
 *
 * @throws {DedupeError} if the index has embeddings by another model, or the service stays unavailable
 */
export async function embed(database: PhotoDatabase, options: EmbedOptions): Promise<EmbedResult> {
  const { progress = openProgress(), signal } = options;
  const { send, model } = await openSend(database, options);
  const photos = pendingPhotos(database, model);
  const startedAt = performance.now();
  let failed = 0;
  const fail = ({ path }: PendingPhoto, problem: string) => {
    failed++;
    progress.note(`${path}: ${problem}`);
  };

  let next = loadPhotos(photos.slice(0, batchSize));
  for (let first = 0; first < photos.length && !signal?.aborted; first += batchSize) {
    const loaded = await next;
    // read while the service computes
    next = loadPhotos(photos.slice(first + batchSize, first + 2 * batchSize));
    try {
      await embedBatch(database, { loaded, model, send, fail });
    } catch (error) {
      if (!signal?.aborted) throw error;
    }
    progress.update(`${Math.min(first + batchSize, photos.length)} of ${photos.length} photos`);
  }
  progress.end();
  const remaining = pendingPhotos(database, model).length;
  const embedded = photos.length - remaining;
  return {
    embedded,
    failed,
    remaining,
    weights: model.weights,
    imagesPerSecond: (1000 * embedded) / (performance.now() - startedAt),
    stopped: signal?.aborted === true,
  };
}

/** Records the service's model; the returned function rejects embeddings of any other. */
async function openSend(
  database: PhotoDatabase,
  options: EmbedOptions,
): Promise<{ readonly send: Send; readonly model: IndexModel }> {
  const probe = await probePicture();
  const [embedding] = await sendWithRetries([probe], options);
  const model = useModel(database, embedding!, options);
  return {
    model,
    async send(images) {
      const sent = images.flatMap((image, i) =>
        i % photosPerRequest === 0 ? [probe, image] : [image],
      );
      const embeddings = await sendWithRetries(sent, options);
      for (const embedding of embeddings.filter((_, i) => sent[i] === probe)) {
        useModel(database, embedding, { ...options, replace: false });
      }
      return embeddings.filter((_, i) => sent[i] !== probe);
    },
  };
}

interface Batch {
  readonly loaded: readonly LoadedPhoto[];
  readonly model: IndexModel;
  readonly send: Send;
  readonly fail: (photo: PendingPhoto, problem: string) => void;
}

async function embedBatch(
  database: PhotoDatabase,
  { loaded, model, send, fail }: Batch,
): Promise<void> {
  const batch: { readonly photo: PendingPhoto; readonly image: Uint8Array }[] = [];
  for (const { photo, image } of loaded) {
    if (image instanceof Error) fail(photo, reasonOf(image));
    else batch.push({ photo, image });
  }
  while (batch.length > 0) {
    try {
      const vectors = await send(batch.map(({ image }) => image));
      database.transaction(() => {
        for (const [i, { photo }] of batch.entries()) {
          database.run(
            "INSERT OR REPLACE INTO embeddings (model, md5, vector) VALUES (?, ?, ?)",
            model.id,
            photo.md5,
            new Uint8Array(vectors[i]!.slice().buffer),
          );
        }
      });
      return;
    } catch (error) {
      if (!(error instanceof ClientError) || error.image === undefined) throw error;
      // every request starts with the probe
      const at = error.image - 1 - Math.floor(error.image / maxImagesPerRequest);
      const [unreadable] = batch.splice(at, 1);
      fail(unreadable!.photo, error.problem.replace(/^image \d+ /, ""));
    }
  }
}

function pendingPhotos(database: PhotoDatabase, { id }: IndexModel): readonly PendingPhoto[] {
  return database.all(
    `SELECT min(path) AS path, md5, format, width, height FROM photos
     WHERE state = 'present' AND md5 NOT IN (SELECT md5 FROM embeddings WHERE model = ?)
     GROUP BY md5 ORDER BY path`,
    id,
  );
}

/** Calls the client, with retries at growing intervals while the service is unavailable. */
async function sendWithRetries(
  images: readonly Uint8Array[],
  { client, waitSeconds, progress, signal }: EmbedOptions,
): Promise<readonly Float32Array[]> {
  const isTransient = (error: unknown) => error instanceof ClientError && transient.has(error.code);
  try {
    return await pRetry(() => client.embed(images), {
      retries: Number.POSITIVE_INFINITY,
      maxRetryTime: waitSeconds * 1000,
      minTimeout: 500,
      maxTimeout: 30_000,
      randomize: true,
      signal,
      shouldRetry: ({ error }) => isTransient(error),
      onFailedAttempt: ({ error, attemptNumber }) => {
        if (attemptNumber > 1 || !(error instanceof ClientError) || !isTransient(error)) return;
        progress?.note(`${error.problem}: retrying for up to ${waitSeconds} s`);
      },
    });
  } catch (cause) {
    if (!(cause instanceof ClientError) || !isTransient(cause)) throw cause;
    throw new DedupeError(
      "failed",
      `${cause.problem}: gave up after ${waitSeconds} s; run the same command again to resume`,
      { cause },
    );
  }
}

/** Loads photos; one that cannot be read has its error. */
function loadPhotos(photos: readonly PendingPhoto[]): Promise<readonly LoadedPhoto[]> {
  const load = async (photo: PendingPhoto) => ({
    photo,
    image: await imageToSend(photo).catch((error: Error) => error),
  });
  return pMap(photos, load, { concurrency: 4 });
}

/** A larger file, or a HEIC, is sent as a smaller copy, so that a request of 32 stays far below the server's limit of 64 MiB. */
const maxSentBytes = 512 * 1024;
/** Pixel limit of the embed server. */
const maxSentPixels = 40_000_000;
/** Shorter side of the copy: at least twice the input of every model of the catalogue. */
export const copySide = 512;

/** @throws {Error} one line, if the photo cannot be read or has changed since the scan */
async function imageToSend(photo: PendingPhoto): Promise<Uint8Array> {
  const { path, md5, format, width, height } = photo;
  const file = await readFile(path);
  if (createHash("md5").update(file).digest("hex") !== md5) {
    throw new Error("has changed since the scan: scan again");
  }
  const isSmall = file.length <= maxSentBytes && width * height <= maxSentPixels;
  if (isSmall && format !== heic) return file;
  const { image } = await openPhoto(file);
  return image
    .flatten({ background: "white" })
    .resize(copySide, copySide, { fit: "outside", withoutEnlargement: true })
    .toColourspace("srgb")
    .jpeg({ quality: 95, chromaSubsampling: "4:4:4" })
    .toBuffer();
}
