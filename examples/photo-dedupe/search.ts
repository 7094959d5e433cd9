import { type InferenceClient, modelCatalogue } from "@clipstack/client";
import { readVectors } from "./compare.ts";
import { DedupeError } from "./dedupe-error.ts";
import {
  cosine,
  findModel,
  type IndexModel,
  probePicture,
  useModel,
  type Weights,
} from "./index-model.ts";
import type { PhotoDatabase } from "./photo-database.ts";

/**
 * Returns the model of the index to search with.
 *
 * @param name - Required if the index has embeddings of several models.
 * @throws {DedupeError} if there are no embeddings of it, or it embeds no texts
 */
export function findTextModel(database: PhotoDatabase, name?: string): IndexModel {
  const model = findModel(database, name);
  const spec = modelCatalogue.get(model.name);
  // only the service knows whether another model embeds texts
  if (spec === undefined || spec.towers.text !== undefined) return model;
  const others = [...modelCatalogue.values()].filter(({ towers }) => towers.image && towers.text);
  throw new DedupeError(
    "usage",
    `${model.name} embeds no texts: embed the photos with a model that does, one of ${others.map((other) => other.name).join(", ")}`,
  );
}

export interface SearchOptions {
  /** Client of the index's model. */
  readonly client: InferenceClient;
  /** Location of the model, for messages. */
  readonly location: string;
  readonly text: string;
  /** Maximum number of contents. */
  readonly limit: number;
}

/** Photos with the same bytes. */
export interface SearchHit {
  readonly cosine: number;
  /** Sorted. */
  readonly paths: readonly string[];
}

export interface SearchResult {
  /** The closest to the text first. */
  readonly hits: readonly SearchHit[];
  readonly weights: Weights;
}

/** Embeddings in memory at a time. */
const chunkSize = 10_000;

/**
 * Finds the photos whose embeddings are closest to that of a text, by comparing all of them.
 *
 * @throws {DedupeError} if the client's model has other weights than the model of the index
 * @throws {ClientError} if the text cannot be embedded
 */
export async function search(
  database: PhotoDatabase,
  model: IndexModel,
  { client, location, text, limit }: SearchOptions,
): Promise<SearchResult> {
  const [probe] = await client.embed([await probePicture()]);
  useModel(database, probe!, { model: model.name, location, replace: false });
  const [query] = await client.embedText([text]);
  const ids = database
    .all<{ readonly id: number }>(
      `SELECT id FROM embeddings WHERE model = ?
       AND md5 IN (SELECT md5 FROM photos WHERE state = 'present') ORDER BY id`,
      model.id,
    )
    .map(({ id }) => id);
  const found: { readonly id: number; readonly cosine: number }[] = [];
  for (let first = 0; first < ids.length; first += chunkSize) {
    const chunk = ids.slice(first, first + chunkSize);
    const { data, width } = readVectors(database, model, chunk);
    for (const [i, id] of chunk.entries()) {
      const vector = data.subarray(i * width, (i + 1) * width);
      found.push({ id, cosine: cosine(query!, vector) });
    }
  }
  found.sort((a, b) => b.cosine - a.cosine || a.id - b.id);
  const hits = found.slice(0, limit).map((hit) => ({
    cosine: hit.cosine,
    paths: database
      .all<{ readonly path: string }>(
        `SELECT path FROM photos WHERE state = 'present'
         AND md5 = (SELECT md5 FROM embeddings WHERE id = ?) ORDER BY path`,
        hit.id,
      )
      .map(({ path }) => path),
  }));
  return { hits, weights: model.weights };
}
