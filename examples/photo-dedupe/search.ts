import { modelCatalogue } from "@clipstack/client";
import {
  cosine,
  openQueryClient,
  type QueryOptions,
  requireSameWeights,
} from "../search/query-client.ts";
import { CommandError } from "../search/report.ts";
import { embeddedImages, findModel, type IndexModel, readVectors } from "./embeddings.ts";
import type { PhotoDatabase } from "./photo-database.ts";

export interface SearchOptions extends QueryOptions {
  readonly text: string;
  /** Maximum number of contents. */
  readonly limit: number;
  /** Required if the index has embeddings of several models. */
  readonly model?: string;
  /** Receives the reason for which the model on this machine is used instead of a service. */
  readonly note: (text: string) => void;
}

/** Photos with the same bytes. */
export interface SearchHit {
  readonly cosine: number;
  /** Sorted. */
  readonly paths: readonly string[];
}

/**
 * Finds the photos whose embeddings are closest to that of a text, by comparing all of them.
 *
 * @throws {CommandError} if the index has no embeddings of a model that embeds texts, or they are by other weights
 * @throws {ClientError} if the text cannot be embedded
 */
export async function search(database: PhotoDatabase, options: SearchOptions) {
  const model = findTextModel(database, options.model);
  const client = await openQueryClient(model.name, options, options.note);
  try {
    const vectors = await readVectors(database, model);
    const image = embeddedImages(database).find(({ sha256 }) => vectors.of(sha256));
    if (image === undefined) return { hits: [], weights: model.weights };
    const sample = { path: image.uri, vector: vectors.of(image.sha256)! };
    await requireSameWeights(client, sample, `'${database.folder}', ${model.name}`);
    const [query] = await client.embedText([options.text]);
    const hits = vectors.contents
      .map((sha256) => ({ sha256, cosine: cosine(query!, vectors.of(sha256)!) }))
      .sort((a, b) => b.cosine - a.cosine || (a.sha256 < b.sha256 ? -1 : 1))
      .slice(0, options.limit);
    const paths = ({ sha256 }: { readonly sha256: string }) =>
      database
        .all<{ readonly path: string }>(
          "SELECT path FROM photos WHERE state = 'present' AND sha256 = ? ORDER BY path",
          sha256,
        )
        .map(({ path }) => path);
    const found: readonly SearchHit[] = hits.map((hit) => ({
      cosine: hit.cosine,
      paths: paths(hit),
    }));
    return { hits: found, weights: model.weights };
  } finally {
    await client.close();
  }
}

function findTextModel(database: PhotoDatabase, name?: string): IndexModel {
  const model = findModel(database, name);
  const spec = modelCatalogue.get(model.name);
  // only the service knows whether another model embeds texts
  if (spec === undefined || spec.towers.text !== undefined) return model;
  const others = [...modelCatalogue.values()].filter(({ towers }) => towers.image && towers.text);
  throw new CommandError(
    "usage",
    `${model.name} embeds no texts: embed the photos with a model that does, one of ${others.map((other) => other.name).join(", ")}`,
  );
}
