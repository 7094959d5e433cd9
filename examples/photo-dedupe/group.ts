import { angle, compareNew, openHashes, readVector } from "./compare.ts";
import { DedupeError } from "./dedupe-error.ts";
import { findModel, type IndexModel, type Weights } from "./index-model.ts";
import { type Linkage, link, type Metric, type SimilarPairs } from "./linkage.ts";
import { hashDistance } from "./perceptual-hash.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import { hashPairs } from "./similar-pairs.ts";

export const groupKinds = ["embedding", "hash"] as const;

export interface GroupOptions {
  /** Property to compare. Perceptual hashes need no model. */
  readonly by: (typeof groupKinds)[number];
  /**
   * Model of the embeddings.
   *
   * @default - the only model of the index
   */
  readonly model?: string;
  /** Minimum cosine of two similar embeddings. */
  readonly threshold: number;
  /** Maximum distance of the perceptual hashes of two photos with similar embeddings; 64 accepts all. */
  readonly confirm: number;
  /** Maximum distance of two similar perceptual hashes. */
  readonly distance: number;
  readonly linkage: Linkage;
  readonly progress?: Progress;
}

export interface GroupResult {
  /** Sorted paths, sorted by the first path of the group. */
  readonly groups: readonly (readonly string[])[];
  /** Number of grouped photos. */
  readonly photos: number;
  /** Number of photos that were not compared. */
  readonly withoutEmbedding: number;
  /** Number of embeddings that were compared now; the results of earlier runs are kept. */
  readonly compared: number;
  readonly how: string;
  readonly weights: Weights;
  readonly seconds: number;
}

interface Photo {
  readonly id: number;
  readonly path: string;
  readonly md5: string;
  readonly hash: string;
  /** Id of the embedding. */
  readonly embedding: number | null;
}

/** Photos with the same bytes. */
interface Content {
  readonly hash: string;
  readonly embedding: number;
  readonly photos: Photo[];
}

/**
 * Replaces the groups in the index. Photos with the same bytes are always in one group. The groups do not depend on the order of
 * scanning, except for photos with more than `maxPairsPerPhoto` similar ones.
 *
 * @throws {DedupeError} if nothing was scanned or embedded
 */
export async function group(database: PhotoDatabase, options: GroupOptions): Promise<GroupResult> {
  const { by, progress = openProgress() } = options;
  const startedAt = performance.now();
  if (database.get("SELECT 1 FROM photos WHERE state = 'present' LIMIT 1") === undefined) {
    throw new DedupeError("failed", "no photos: run 'clipstack-dedupe scan' first");
  }
  const model = by === "hash" ? undefined : findModel(database, options.model);
  const present = readPhotos(database, model);
  const photos = model ? present.filter(({ embedding }) => embedding !== null) : present;
  const contents = contentsOf(photos);
  const { compared, groups: clusters } = model
    ? await groupByEmbedding(database, contents, model, { ...options, progress })
    : { compared: 0, groups: await groupByHash(contents, { ...options, progress }) };
  progress.end();
  const groups = groupsOf(contents, clusters);
  const how = describe(options, model);
  const weights = model?.weights ?? "unknown";
  writeGroups(database, groups, { how, weights, model: model?.name });
  return {
    groups: groups.map((members) => members.map(({ path }) => path)),
    photos: photos.length,
    withoutEmbedding: present.length - photos.length,
    compared,
    how,
    weights,
    seconds: (performance.now() - startedAt) / 1000,
  };
}

function describe(
  { by, threshold, confirm, distance, linkage }: GroupOptions,
  model: IndexModel | undefined,
): string {
  const limits =
    by === "hash"
      ? `perceptual hash, at most ${distance} of 64 bits differ`
      : `${model?.name}, cosine of at least ${threshold}${confirm < 64 ? `, at most ${confirm} of 64 bits of the perceptual hash differ` : ""}`;
  return linkage === "chain" ? `${limits}, chains of similar photos` : limits;
}

function readPhotos(database: PhotoDatabase, model: IndexModel | undefined): readonly Photo[] {
  return database.all(
    `SELECT p.id, p.path, p.md5, p.hash, e.id AS embedding
     FROM photos p LEFT JOIN embeddings e ON e.model = ? AND e.md5 = p.md5
     WHERE p.state = 'present' ORDER BY p.path`,
    model?.id ?? 0,
  );
}

/** Returns one item per content, in the order of the paths. */
function contentsOf(photos: readonly Photo[]): readonly Content[] {
  const contents = new Map<string, Content>();
  for (const photo of photos) {
    const known = contents.get(photo.md5);
    if (known !== undefined) known.photos.push(photo);
    else {
      const { md5, hash, embedding } = photo;
      contents.set(md5, { hash, embedding: embedding ?? 0, photos: [photo] });
    }
  }
  return [...contents.values()];
}

async function groupByEmbedding(
  database: PhotoDatabase,
  contents: readonly Content[],
  model: IndexModel,
  { threshold, confirm: bits, linkage, progress }: GroupOptions,
) {
  const compared = await compareNew(database, model, { threshold, bits }, progress);
  progress?.update("grouping photos");
  const hashes = openHashes(database, model);
  const vector = openVectors(database, model);
  const embedding = (content: number) => contents[content]!.embedding;
  const metrics: readonly Metric[] = [
    {
      // above the rounding of float32
      limit: Math.acos(threshold) + 1e-6,
      distance: (a, b) => angle(vector(embedding(a)), vector(embedding(b))),
    },
    { limit: bits, distance: (a, b) => hashes.distance(embedding(a), embedding(b)) },
  ];
  const pairs = readPairs(database, contents, model, { threshold, bits });
  const used = bits < 64 ? metrics : metrics.slice(0, 1);
  return { compared, groups: link(contents.length, pairs, linkage, used) };
}

/** Reads the stored pairs within the limits, the most similar first; equal ones in the order of the contents. */
function readPairs(
  database: PhotoDatabase,
  contents: readonly Content[],
  model: IndexModel,
  { threshold, bits }: { readonly threshold: number; readonly bits: number },
): SimilarPairs {
  const hashes = openHashes(database, model);
  const contentOf = new Map(contents.map(({ embedding }, i) => [embedding, i]));
  const rows = database
    .all<{ readonly a: number; readonly b: number; readonly cosine: number }>(
      "SELECT a, b, cosine FROM pairs WHERE model = ? AND cosine >= ?",
      model.id,
      threshold,
    )
    .filter(
      ({ a, b }) => contentOf.has(a) && contentOf.has(b) && hashes.distance(a, b, bits) <= bits,
    )
    .map(({ a, b, cosine }) => orderedPair(contentOf.get(a)!, contentOf.get(b)!, cosine));
  return sortedPairs(rows);
}

interface Pair {
  readonly a: number;
  readonly b: number;
  readonly similarity: number;
}

const orderedPair = (a: number, b: number, similarity: number): Pair => ({
  a: Math.min(a, b),
  b: Math.max(a, b),
  similarity,
});

function sortedPairs(pairs: Pair[]): SimilarPairs {
  pairs.sort((x, y) => y.similarity - x.similarity || x.a - y.a || x.b - y.b);
  return {
    a: Int32Array.from(pairs, ({ a }) => a),
    b: Int32Array.from(pairs, ({ b }) => b),
    count: pairs.length,
  };
}

async function groupByHash(
  contents: readonly Content[],
  { distance, linkage, progress }: GroupOptions,
) {
  const hashes = contents.map(({ hash }) => hash);
  const pairs: Pair[] = [];
  await hashPairs(hashes, distance, {
    onPair: (a, b, similarity) => pairs.push({ a, b, similarity }),
    onProgress: (share) => progress?.update(`comparing photos: ${Math.round(100 * share)} %`),
  });
  const metric: Metric = {
    limit: distance,
    distance: (a, b) => hashDistance(hashes[a]!, hashes[b]!),
  };
  return link(contents.length, sortedPairs(pairs), linkage, [metric]);
}

const vectorCacheBytes = 256 * 1024 * 1024;

/** Reads embeddings on demand, and keeps the ones used last. */
function openVectors(database: PhotoDatabase, { width }: IndexModel) {
  const limit = Math.floor(vectorCacheBytes / (4 * width));
  const cache = new Map<number, Float32Array>();
  return (id: number): Float32Array => {
    const known = cache.get(id);
    if (known !== undefined) return known;
    const read = readVector(database, id);
    if (cache.size >= limit) cache.delete(cache.keys().next().value!);
    cache.set(id, read);
    return read;
  };
}

/** Returns the photos of each cluster, and those of each content with copies, in the order of the paths. */
function groupsOf(
  contents: readonly Content[],
  clusters: readonly (readonly number[])[],
): readonly (readonly Photo[])[] {
  const clustered = new Set(clusters.flat());
  const copies = contents.flatMap(({ photos }, i) =>
    photos.length > 1 && !clustered.has(i) ? [photos] : [],
  );
  const joined = clusters.map((members) => members.flatMap((i) => contents[i]!.photos));
  return [...joined, ...copies]
    .map((photos) => photos.sort((a, b) => (a.path < b.path ? -1 : 1)))
    .sort(([a], [b]) => (a!.path < b!.path ? -1 : 1));
}

/** Options with which the groups of the index were computed. */
export interface Grouping {
  readonly how: string;
  readonly weights: Weights;
  /** Model of the embeddings; undefined if the photos were grouped by hash. */
  readonly model?: string;
}

function writeGroups(
  database: PhotoDatabase,
  groups: readonly (readonly Photo[])[],
  grouping: Grouping,
): void {
  database.transaction(() => {
    database.run("UPDATE photos SET position = NULL WHERE position IS NOT NULL");
    for (const [position, members] of groups.entries()) {
      for (const { id } of members) {
        database.run("UPDATE photos SET position = ? WHERE id = ?", position, id);
      }
    }
    writeSetting(database, "groups", grouping);
  });
}

export function readGrouping(database: PhotoDatabase): Grouping | undefined {
  return readSetting(database, "groups");
}
