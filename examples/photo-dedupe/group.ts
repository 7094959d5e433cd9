import { openBestPairs } from "../search/cosine-blocks.ts";
import { nearDuplicates, type SimilarPair } from "../search/near-duplicates.ts";
import { cosine } from "../search/query-client.ts";
import { CommandError, type Progress } from "../search/report.ts";
import { findModel, type IndexModel, readVectors, type Weights } from "./embeddings.ts";
import { readFacts } from "./facts.ts";
import { type Linkage, link, type Metric } from "./linkage.ts";
import { hashWords, orientations, orientedDistance } from "./perceptual-hash.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";

export interface GroupOptions {
  /** Property to compare. Perceptual hashes need no model. */
  readonly by: "embedding" | "hash";
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
  readonly progress: Progress;
}

interface Photo {
  readonly id: number;
  readonly path: string;
  readonly sha256: string;
}

/** Photos with the same bytes. */
interface Content {
  readonly sha256: string;
  readonly photos: Photo[];
}

/**
 * Replaces the groups in the index. Photos with the same bytes are always in one group. The groups do not depend on the order of
 * scanning, except for photos with more than `maxPairsPerVector` similar ones.
 *
 * @throws {CommandError} if nothing was scanned or embedded
 */
export async function group(database: PhotoDatabase, options: GroupOptions) {
  const { by, linkage, progress } = options;
  const startedAt = performance.now();
  const photos = database.all<Photo>(
    "SELECT id, path, sha256 FROM photos WHERE state = 'present' ORDER BY path",
  );
  if (photos.length === 0) {
    throw new CommandError("failed", "no photos: run 'clipstack-dedupe scan' first");
  }
  const model = by === "hash" ? undefined : findModel(database, options.model);
  const contents = contentsOf(photos);
  const found = model
    ? await similarByEmbedding(database, contents, model, options)
    : await similarByHash(database, contents, options);
  progress.update("grouping photos");
  const clusters = link(found.contents.length, found.pairs, linkage, found.metrics);
  const groups = groupsOf(found.contents, clusters);
  const how = describe(options, model);
  const weights = model?.weights ?? "unknown";
  writeGroups(database, groups, { how, weights, model: model?.name });
  const compared = found.contents.flatMap(({ photos: copies }) => copies).length;
  return {
    /** Sorted paths, sorted by the first path of the group. */
    groups: groups.map((members) => members.map(({ path }) => path)),
    photos: compared,
    withoutEmbedding: photos.length - compared,
    /** Embeddings that were compared now; the pairs of earlier runs are kept. */
    compared: found.compared,
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

/** Returns one item per content, in the order of the paths. */
function contentsOf(photos: readonly Photo[]): readonly Content[] {
  const contents = new Map<string, Content>();
  for (const photo of photos) {
    const { sha256 } = photo;
    const known = contents.get(sha256);
    if (known !== undefined) known.photos.push(photo);
    else contents.set(sha256, { sha256, photos: [photo] });
  }
  return [...contents.values()];
}

/** Similar contents, by index. */
interface SimilarContents {
  readonly contents: readonly Content[];
  /** Within the limits, the most similar first. */
  readonly pairs: readonly SimilarPair[];
  readonly metrics: readonly Metric[];
  /** Number of contents that were compared now. */
  readonly compared: number;
}

async function similarByEmbedding(
  database: PhotoDatabase,
  all: readonly Content[],
  model: IndexModel,
  { threshold, confirm, progress }: GroupOptions,
): Promise<SimilarContents> {
  const vectors = await readVectors(database, model);
  const embedded = all.filter(({ sha256 }) => vectors.of(sha256) !== undefined);
  const compared = await compareNew(database, model, vectors, { threshold, progress });
  const similar = database
    .all<{ readonly a: string; readonly b: string; readonly cosine: number }>(
      "SELECT a, b, cosine FROM pairs WHERE model = ? AND cosine >= ?",
      model.name,
      threshold,
    )
    .filter(({ a, b }) => vectors.of(a) !== undefined && vectors.of(b) !== undefined);
  const copied = embedded.filter(({ photos }) => photos.length > 1);
  const candidates = new Set(similar.flatMap(({ a, b }) => [a, b]));
  for (const { sha256 } of copied) candidates.add(sha256);
  await readFacts(database, progress, candidates);
  const hashes = readHashes(database);
  const contents = embedded.filter(({ sha256 }) => !candidates.has(sha256) || hashes.has(sha256));
  const bits = distanceOf(hashes, contents);
  const indexOf = new Map(contents.map(({ sha256 }, index) => [sha256, index]));
  const pairs = similar
    .filter(({ a, b }) => indexOf.has(a) && indexOf.has(b))
    .map(({ a: first, b: second, cosine }) => {
      const [a, b] = [indexOf.get(first)!, indexOf.get(second)!];
      return { a: Math.min(a, b), b: Math.max(a, b), cosine };
    })
    .filter(({ a, b }) => confirm === 64 || bits(a, b, confirm) <= confirm)
    .sort(byCosine);
  const vector = (content: number) => vectors.of(contents[content]!.sha256)!;
  const metrics: readonly Metric[] = [
    {
      // above the rounding of float32
      limit: Math.acos(threshold) + 1e-6,
      distance: (a, b) => angle(vector(a), vector(b)),
    },
    { limit: confirm, distance: bits },
  ];
  return { contents, pairs, metrics: confirm < 64 ? metrics : metrics.slice(0, 1), compared };
}

/** Angle of two embeddings in radians: a metric, unlike the cosine. */
function angle(a: Float32Array, b: Float32Array): number {
  return Math.acos(Math.min(1, Math.max(-1, cosine(a, b))));
}

/**
 * Compares the embeddings that have not been compared yet, with each other and with all others, and stores the similar pairs; all of
 * them if the stored pairs do not suffice for the threshold.
 *
 * @returns Number of compared embeddings.
 */
async function compareNew(
  database: PhotoDatabase,
  { name }: IndexModel,
  vectors: Awaited<ReturnType<typeof readVectors>>,
  { threshold, progress }: Pick<GroupOptions, "threshold" | "progress">,
): Promise<number> {
  const setting = `threshold of ${name}`;
  if ((readSetting<number>(database, setting) ?? 2) > threshold) {
    for (const table of ["pairs", "compared"]) {
      database.run(`DELETE FROM ${table} WHERE model = ?`, name);
    }
  }
  const known = new Set(
    database
      .all<{ readonly sha256: string }>("SELECT sha256 FROM compared WHERE model = ?", name)
      .map(({ sha256 }) => sha256),
  );
  const { contents } = vectors;
  const added = contents.filter((sha256) => !known.has(sha256));
  if (added.length === 0) return 0;
  const pairs = await nearDuplicates(vectors, {
    threshold: Math.min(threshold, readSetting<number>(database, setting) ?? threshold),
    isKnown: (index) => known.has(contents[index]!),
    onProgress: (share) => progress.update(`comparing photos: ${Math.round(100 * share)} %`),
  });
  // at once: a run that is stopped compares again
  database.transaction(() => {
    for (const { a, b, cosine } of pairs) {
      const [first, second] = [contents[a]!, contents[b]!].sort() as [string, string];
      database.run("INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?)", name, first, second, cosine);
    }
    for (const sha256 of added) database.run("INSERT INTO compared VALUES (?, ?)", name, sha256);
    if (known.size === 0) writeSetting(database, setting, threshold);
  });
  return added.length;
}

const byCosine = (x: SimilarPair, y: SimilarPair) => y.cosine - x.cosine || x.a - y.a || x.b - y.b;

type Hashes = ReadonlyMap<string, readonly [number, number]>;

/** Perceptual hashes of the photos that were read, by content. */
function readHashes(database: PhotoDatabase): Hashes {
  const rows = database.all<{ readonly sha256: string; readonly hash: string }>(
    "SELECT DISTINCT sha256, hash FROM photos WHERE hash IS NOT NULL",
  );
  return new Map(rows.map(({ sha256, hash }) => [sha256, hashWords(hash)]));
}

/** Returns the distance of the hashes of two contents in the closest orientation, by index. */
function distanceOf(hashes: Hashes, contents: readonly Content[]) {
  const words = contents.map(({ sha256 }) => hashes.get(sha256) ?? ([0, 0] as const));
  let variantsOf = -1;
  let variants: Uint32Array = new Uint32Array(0);
  return (a: number, b: number, enough = 0): number => {
    if (a !== variantsOf) [variants, variantsOf] = [orientations(...words[a]!), a];
    return orientedDistance(variants, words[b]!, enough);
  };
}

/** Compares all perceptual hashes; each photo keeps its closest later ones. */
async function similarByHash(
  database: PhotoDatabase,
  all: readonly Content[],
  { distance, progress }: GroupOptions,
): Promise<SimilarContents> {
  await readFacts(database, progress);
  const hashes = readHashes(database);
  const contents = all.filter(({ sha256 }) => hashes.has(sha256));
  const bits = distanceOf(hashes, contents);
  const pairs: SimilarPair[] = [];
  for (let a = 0; a < contents.length; a++) {
    const best = openBestPairs();
    for (let b = a + 1; b < contents.length; b++) {
      const found = bits(a, b);
      if (found <= distance && -found > best.least()) best.add(b, -found);
    }
    for (const { other, similarity } of best.pairs) pairs.push({ a, b: other, cosine: similarity });
    progress.update(`comparing photos: ${a} of ${contents.length}`);
  }
  const metrics = [{ limit: distance, distance: bits }];
  return { contents, pairs: pairs.sort(byCosine), metrics, compared: 0 };
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
