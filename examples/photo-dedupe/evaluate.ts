import { realpath } from "node:fs/promises";
import { join, sep } from "node:path";
import { DedupeError } from "./dedupe-error.ts";
import { readEmbeddings } from "./group.ts";
import { modelInUse } from "./model-identity.ts";
import { hashDistance } from "./perceptual-hash.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { type PhotoLabel, readLabels } from "./photo-labels.ts";
import { cosine } from "./probe.ts";

/** How well pairs of photos that show the same are told from others. */
export interface Score {
  /** Bits, or cosine. */
  readonly limit: number;
  /** Of the pairs that were found, those that show the same. 1 where none was found. */
  readonly precision: number;
  /** Of the pairs that show the same, those that were found. */
  readonly recall: number;
}

export interface Evaluation {
  readonly scores: readonly Score[];
  /** The one with the best harmonic mean of precision and recall. */
  readonly best: Score;
  /** At the best limit, by what was done to a photo: part of the pairs with its original that were found. */
  readonly recallByChange: Readonly<Record<string, number>>;
}

export interface EvaluateResult {
  readonly photos: number;
  /** Pairs that show the same. */
  readonly duplicates: number;
  readonly hash: Evaluation;
  /** `undefined` where nothing was embedded. */
  readonly embedding: Evaluation | undefined;
  readonly weights: "random" | "unknown";
}

interface Compared {
  readonly a: PhotoLabel;
  readonly b: PhotoLabel;
  readonly hash: number;
  /** `undefined` where one of the two has no embedding. */
  readonly cosine: number | undefined;
}

const distances = [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24];
const cosines = [0.999, 0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.85, 0.8];

/**
 * Compare every pair of labelled photos, by perceptual hash alone and by embedding.
 *
 * @throws {DedupeError} when the labels are missing, or photos that they name were not scanned
 */
export async function evaluate(database: PhotoDatabase, folder: string): Promise<EvaluateResult> {
  const labels = await readLabels(folder);
  const root = await realpath(folder);
  const { items, rows, table } = readEmbeddings(database);
  const vectors = new Map(
    items.map(({ path }, i) => {
      const at = rows[i]! * table.width;
      return [path, table.data.subarray(at, at + table.width)];
    }),
  );
  const photos = labels.map((label) => {
    const path = join(root, ...label.file.split("/"));
    const row = database.get<{ readonly hash: string }>(
      "SELECT hash FROM photos WHERE path = ? AND state = 'present'",
      [path],
    );
    if (row === undefined) {
      throw new DedupeError(
        "usage",
        `'${path.slice(root.length + sep.length)}' of the labels is not in '${database.file}': scan '${folder}' first`,
      );
    }
    return { label, hash: row.hash, vector: vectors.get(path) };
  });
  const pairs = photos.flatMap((a, i) =>
    photos.slice(i + 1).map(
      (b): Compared => ({
        a: a.label,
        b: b.label,
        hash: hashDistance(a.hash, b.hash),
        cosine: a.vector && b.vector ? cosine(a.vector, b.vector) : undefined,
      }),
    ),
  );
  const embedded = photos.every(({ vector }) => vector !== undefined);
  return {
    photos: photos.length,
    duplicates: pairs.filter(isSame).length,
    hash: evaluation(pairs, distances, (pair, limit) => pair.hash <= limit),
    embedding: embedded
      ? evaluation(pairs, cosines, (pair, limit) => (pair.cosine ?? -1) >= limit)
      : undefined,
    weights: modelInUse(database)?.weights ?? "unknown",
  };
}

const isSame = ({ a, b }: Compared) => a.original === b.original;

function evaluation(
  pairs: readonly Compared[],
  limits: readonly number[],
  isFound: (pair: Compared, limit: number) => boolean,
): Evaluation {
  const same = pairs.filter(isSame);
  const scores = limits.map((limit) => {
    const found = pairs.filter((pair) => isFound(pair, limit));
    const right = found.filter(isSame).length;
    return {
      limit,
      precision: found.length === 0 ? 1 : right / found.length,
      recall: same.length === 0 ? 1 : right / same.length,
    };
  });
  const best = scores.reduce((x, y) => (harmonic(y) > harmonic(x) ? y : x));
  const recallByChange: Record<string, number> = {};
  for (const change of new Set(pairs.flatMap(({ a, b }) => [a.change, b.change]))) {
    const withOriginal = same.filter(
      ({ a, b }) =>
        (a.change === change && b.change === "none") ||
        (b.change === change && a.change === "none"),
    );
    if (withOriginal.length === 0) continue;
    const found = withOriginal.filter((pair) => isFound(pair, best.limit));
    recallByChange[change] = found.length / withOriginal.length;
  }
  return { scores, best, recallByChange };
}

function harmonic({ precision, recall }: Score): number {
  return precision + recall === 0 ? 0 : (2 * precision * recall) / (precision + recall);
}
