import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { readVectors } from "./group.ts";
import { cosine, type Weights, weightsInUse } from "./model-probe.ts";
import { hashDistance } from "./perceptual-hash.ts";
import type { PhotoDatabase } from "./photo-database.ts";

/** File next to the photos with their subjects. */
export const labelsFile = "labels.json";

const photoLabel = z.strictObject({
  /** Path in the folder, with `/`. */
  file: z.string().min(1),
  /** Subject; photos with the same value are duplicates. */
  original: z.string().min(1),
});
export type PhotoLabel = z.infer<typeof photoLabel>;

/** Precision and recall of a threshold for duplicate pairs. */
export interface Score {
  /** Threshold in bits, or as cosine. */
  readonly limit: number;
  /** Share of the found pairs that are duplicates; 1 if none was found. */
  readonly precision: number;
  /** Share of the duplicate pairs that were found. */
  readonly recall: number;
}

export interface Evaluation {
  readonly scores: readonly Score[];
  /** The score with the highest harmonic mean of precision and recall. */
  readonly best: Score;
}

export interface EvaluateResult {
  readonly photos: number;
  /** Number of duplicate pairs. */
  readonly duplicates: number;
  readonly hash: Evaluation;
  /** `undefined` if a photo has no embedding. */
  readonly embedding: Evaluation | undefined;
  readonly weights: Weights;
}

interface LabelledPair {
  readonly same: boolean;
  /** Hamming distance of the perceptual hashes. */
  readonly bits: number;
  readonly cosine: number;
}

const distances = [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24];
const cosines = [0.999, 0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.9, 0.85, 0.8];

/**
 * Compares every pair of labelled photos, by perceptual hash alone and by embedding.
 *
 * @throws {DedupeError} if the labels are missing or invalid, or a labelled photo was not scanned
 */
export async function evaluate(database: PhotoDatabase, folder: string): Promise<EvaluateResult> {
  const labels = await readLabels(join(folder, labelsFile));
  const root = await realpath(folder);
  const photos = labels.map(({ file, original }) => {
    const row = database.get<{
      readonly md5: string;
      readonly hash: string;
      readonly embedded: number;
    }>(
      `SELECT md5, hash, md5 IN (SELECT md5 FROM embeddings) AS embedded FROM photos
       WHERE path = ? AND state = 'present'`,
      join(root, ...file.split("/")),
    );
    if (row !== undefined) return { ...row, original };
    throw new DedupeError(
      "usage",
      `'${file}' of the labels is not in '${database.file}': scan '${folder}' first`,
    );
  });
  const embedded = photos.every((photo) => photo.embedded === 1);
  const { data, width } = readVectors(database, embedded ? photos.map(({ md5 }) => md5) : []);
  const vector = (i: number) => data.subarray(i * width, (i + 1) * width);
  const pairs = photos.flatMap((a, i) =>
    photos.slice(i + 1).map((b, j) => ({
      same: a.original === b.original,
      bits: hashDistance(a.hash, b.hash),
      cosine: cosine(vector(i), vector(i + 1 + j)),
    })),
  );
  return {
    photos: photos.length,
    duplicates: pairs.filter(({ same }) => same).length,
    hash: evaluation(pairs, distances, ({ bits }, limit) => bits <= limit),
    embedding: embedded
      ? evaluation(pairs, cosines, (pair, limit) => pair.cosine >= limit)
      : undefined,
    weights: weightsInUse(database),
  };
}

async function readLabels(file: string): Promise<readonly PhotoLabel[]> {
  try {
    return z
      .array(photoLabel)
      .min(2)
      .parse(JSON.parse(await readFile(file, "utf8")));
  } catch (cause) {
    const [issue] = cause instanceof z.ZodError ? cause.issues : [];
    const reason = issue ? `${issue.path.join(".")}: ${issue.message}` : reasonOf(cause);
    throw new DedupeError("usage", `labels '${file}': ${reason}`, { cause });
  }
}

function evaluation(
  pairs: readonly LabelledPair[],
  limits: readonly number[],
  isFound: (pair: LabelledPair, limit: number) => boolean,
): Evaluation {
  const same = pairs.filter((pair) => pair.same).length;
  const scores = limits.map((limit) => {
    const found = pairs.filter((pair) => isFound(pair, limit));
    const right = found.filter((pair) => pair.same).length;
    return {
      limit,
      precision: found.length === 0 ? 1 : right / found.length,
      recall: same === 0 ? 1 : right / same,
    };
  });
  return { scores, best: scores.reduce((x, y) => (harmonic(y) > harmonic(x) ? y : x)) };
}

function harmonic({ precision, recall }: Score): number {
  return precision + recall === 0 ? 0 : (2 * precision * recall) / (precision + recall);
}
