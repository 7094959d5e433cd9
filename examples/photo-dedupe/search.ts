import { readFile } from "node:fs/promises";
import {
  clientOptionsFromEnv,
  type InferenceClient,
  type InferenceClientOptions,
  modelCatalogue,
  openInferenceClient,
} from "@clipstack/client";
import { modelFile } from "./embed.ts";
import { cosine, embeddedImages, findModel, type IndexModel, readVectors } from "./embeddings.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { DedupeError } from "./report.ts";

export interface SearchOptions extends Partial<Pick<InferenceClientOptions, "backend" | "mode">> {
  readonly text: string;
  /** Maximum number of contents. */
  readonly limit: number;
  /** Required if the index has embeddings of several models. */
  readonly model?: string;
  readonly url?: string;
  readonly modelFile?: string;
  readonly textModelFile?: string;
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
 * @throws {DedupeError} if the index has no embeddings of a model that embeds texts, or they are by other weights
 * @throws {ClientError} if the text cannot be embedded
 */
export async function search(database: PhotoDatabase, options: SearchOptions) {
  const model = findTextModel(database, options.model);
  const client = await openClient(model.name, options);
  try {
    const vectors = await readVectors(database, model);
    await requireSameWeights(database, model, client, vectors.of);
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
  throw new DedupeError(
    "usage",
    `${model.name} embeds no texts: embed the photos with a model that does, one of ${others.map((other) => other.name).join(", ")}`,
  );
}

/** Opens the client that options and environment select. The files on this machine are by default those of `clipstack model`. */
async function openClient(model: string, options: SearchOptions): Promise<InferenceClient> {
  const fromEnv = clientOptionsFromEnv(process.env);
  const spec = modelCatalogue.get(model);
  return await openInferenceClient({
    ...fromEnv,
    backend: options.backend ?? fromEnv.backend,
    mode: options.mode ?? fromEnv.mode,
    serviceUrl: options.url ?? fromEnv.serviceUrl,
    model,
    modelPath: options.modelFile ?? fromEnv.modelPath ?? (spec && modelFile(model)),
    textModelPath:
      options.textModelFile ?? fromEnv.textModelPath ?? (spec && modelFile(model, "_text")),
    onFallback: (reason) => options.note(`${reason}: using the model on this machine`),
  });
}

/** Minimum cosine of two embeddings of a photo by the same weights. Precisions differ by less, other weights by more. */
const sameWeightsCosine = 0.97;

/** Embeds a photo of the index again. */
async function requireSameWeights(
  database: PhotoDatabase,
  { name }: IndexModel,
  client: InferenceClient,
  vectorOf: (sha256: string) => Float32Array | undefined,
): Promise<void> {
  const image = embeddedImages(database).find(({ sha256 }) => vectorOf(sha256));
  if (image === undefined) return;
  const [again] = await client.embed([await readFile(image.uri)]);
  const known = vectorOf(image.sha256)!;
  if (again!.length === known.length && cosine(again!, known) >= sameWeightsCosine) return;
  throw new DedupeError(
    "failed",
    `'${database.folder}' has embeddings by another '${name}' than that of the service or file: use that one, or embed all again with --replace`,
  );
}
