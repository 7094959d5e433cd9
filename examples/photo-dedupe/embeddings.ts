import { existsSync, readdirSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import type { VectorTable } from "../search/cosine-blocks.ts";
import { CommandError } from "../search/report.ts";
import { readTable, readUris } from "../search/table.ts";
import { heic } from "./open-photo.ts";
import { type PhotoDatabase, readSetting } from "./photo-database.ts";

/** `random`: weights of `clipstack model generate`, whose embeddings are unrelated to the content. */
export type Weights = "random" | "unknown";

/** Printed with every result of random weights. */
export const randomWeightsText =
  "the model has random weights: the results are for testing and do not reflect the content of the photos";

/** Model with embeddings in the index. */
export interface IndexModel {
  /** Name of its spec. */
  readonly name: string;
  readonly weights: Weights;
}

export const weightsSetting = (model: string) => `weights of ${model}`;

/**
 * Returns the model with embeddings in the index.
 *
 * @param name - Required if there are several.
 * @throws {CommandError} if there is none of this name, or there are several and `name` is undefined
 */
export function findModel(database: PhotoDatabase, name?: string): IndexModel {
  const names = modelNames(database);
  if (names.length === 0) {
    throw new CommandError(
      "failed",
      "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
    );
  }
  const found = name ?? (names.length === 1 ? names[0] : undefined);
  if (found === undefined || !names.includes(found)) {
    const problem = name === undefined ? "is required" : `'${name}' has no embeddings in the index`;
    throw new CommandError("usage", `--model ${problem}: must be one of ${names.join(", ")}`);
  }
  return { name: found, weights: readSetting(database, weightsSetting(found)) ?? "unknown" };
}

export function modelNames({ folder }: PhotoDatabase): readonly string[] {
  const names = readdirSync(folder).sort();
  return names.filter((name) => existsSync(join(folder, name, "parts")));
}

/** Absolute path of a model's folder of `clipstack bulk`. */
export const jobOf = ({ folder }: PhotoDatabase, model: string) => resolve(folder, model);

/** Image that is embedded for all photos with the same bytes: one of them, or a JPEG copy of a HEIC. */
export interface EmbeddedImage {
  readonly sha256: string;
  readonly path: string;
  readonly uri: string;
  /** As `clipstack bulk` computes it for a file; empty if there is no copy yet. */
  readonly etag: string;
}

export function embeddedImages(database: PhotoDatabase): readonly EmbeddedImage[] {
  const rows = database.all<{
    readonly path: string;
    readonly sha256: string;
    readonly format: string | null;
    readonly bytes: number;
    readonly mtime_ms: number;
  }>(
    `SELECT min(path) AS path, sha256, format, bytes, mtime_ms FROM photos
     WHERE state = 'present' GROUP BY sha256 ORDER BY path`,
  );
  return rows.map(({ path, sha256, format, bytes, mtime_ms }) => {
    if (format !== heic) return { sha256, path, uri: path, etag: etagOf(bytes, mtime_ms) };
    const uri = resolve(database.folder, "heic", `${sha256}.jpg`);
    const copy = statSync(uri, { throwIfNoEntry: false });
    return { sha256, path, uri, etag: copy ? etagOf(copy.size, copy.mtimeMs) : "" };
  });
}

const etagOf = (bytes: number, mtimeMs: number) =>
  `${bytes.toString(36)}-${Math.round(mtimeMs * 1000).toString(36)}`;

/** Embeddings of the present photos, one per content. */
export interface PhotoVectors extends VectorTable {
  /** SHA-256 of the file of each. */
  readonly contents: readonly string[];
  /** Embedding of a content; undefined if there is none. */
  of(sha256: string): Float32Array | undefined;
}

export function imagesByUri(database: PhotoDatabase): ReadonlyMap<string, EmbeddedImage> {
  return new Map(embeddedImages(database).map((image) => [image.uri, image]));
}

/** Counts the present contents with an embedding, without reading the embeddings. */
export async function embeddingCount(database: PhotoDatabase, model: string): Promise<number> {
  const byUri = imagesByUri(database);
  const isPresent = (uri: string, etag: string) => byUri.get(uri)?.etag === etag;
  return (await readUris(jobOf(database, model), isPresent)).uris.length;
}

/** @param wanted - Contents to read. @default - all */
export async function readVectors(
  database: PhotoDatabase,
  model: Pick<IndexModel, "name">,
  wanted?: ReadonlySet<string>,
): Promise<PhotoVectors> {
  const byUri = imagesByUri(database);
  const { uris, ...table } = await readTable(jobOf(database, model.name), (uri, etag) => {
    const image = byUri.get(uri);
    return image?.etag === etag && (wanted?.has(image.sha256) ?? true);
  });
  const contents = uris.map((uri) => byUri.get(uri)!.sha256);
  const rows = new Map(contents.map((sha256, row) => [sha256, row]));
  const of = (sha256: string) => {
    const row = rows.get(sha256);
    return row === undefined
      ? undefined
      : table.data.subarray(row * table.width, (row + 1) * table.width);
  };
  return { ...table, contents, of };
}
