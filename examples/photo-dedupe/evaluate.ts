import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { readVector } from "./compare.ts";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { readGrouping } from "./group.ts";
import { cosine, findModel, type IndexModel, type Weights } from "./index-model.ts";
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

/** Precision and recall over duplicate pairs. */
export interface PrecisionRecall {
  /** Share of the found pairs that are duplicates; 1 if none was found. */
  readonly precision: number;
  /** Share of the duplicate pairs that were found. */
  readonly recall: number;
}

export interface Score extends PrecisionRecall {
  /** Threshold in bits, or as cosine. */
  readonly limit: number;
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
  /** Embeddings confirmed by the perceptual hash. */
  readonly confirmed: Evaluation | undefined;
  /** Pairs of photos in the same group of the last `group`. */
  readonly groups: PrecisionRecall | undefined;
  readonly weights: Weights;
}

export interface EvaluateOptions {
  /**
   * Model of the embeddings.
   *
   * @default - the only model of the index, if it has one
   */
  readonly model?: string;
  /** Maximum distance of the hashes of a confirmed pair, in bits. */
  readonly confirm: number;
}

interface LabelledPair {
  readonly same: boolean;
  /** Hamming distance of the perceptual hashes. */
  readonly bits: number;
  readonly cosine: number;
  readonly sameGroup: boolean;
}

const distances = [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24];
const cosines = [
  0.999, 0.99, 0.98, 0.97, 0.95, 0.92, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4,
];

/**
 * Compares every pair of labelled photos: by perceptual hash, by embedding, by both, and by the groups of the last `group`.
 *
 * @throws {DedupeError} if the labels are missing or invalid, or a labelled photo was not scanned
 */
export async function evaluate(
  database: PhotoDatabase,
  folder: string,
  { model: name, confirm }: EvaluateOptions,
): Promise<EvaluateResult> {
  const labels = await readLabels(join(folder, labelsFile));
  const root = await realpath(folder);
  const hasModel = name !== undefined || database.get("SELECT 1 FROM embeddings LIMIT 1");
  const model = hasModel ? findModel(database, name) : undefined;
  const photos = labels.map((label) => readLabelledPhoto(database, { root, folder, label, model }));
  const vectors = photos.flatMap(({ embedding }) =>
    embedding === null ? [] : [readVector(database, embedding)],
  );
  const embedded = vectors.length === photos.length;
  const pairs = photos.flatMap((a, i) =>
    photos.slice(i + 1).map((b, j) => ({
      same: a.original === b.original,
      bits: hashDistance(a.hash, b.hash),
      cosine: embedded ? cosine(vectors[i]!, vectors[i + 1 + j]!) : 0,
      sameGroup: a.position !== null && a.position === b.position,
    })),
  );
  const byEmbedding = (bits: number) =>
    embedded
      ? evaluation(pairs, cosines, (pair, limit) => pair.cosine >= limit && pair.bits <= bits)
      : undefined;
  return {
    photos: photos.length,
    duplicates: pairs.filter(({ same }) => same).length,
    hash: evaluation(pairs, distances, ({ bits }, limit) => bits <= limit),
    embedding: byEmbedding(64),
    confirmed: byEmbedding(confirm),
    groups: readGrouping(database) && scoreOf(pairs, ({ sameGroup }) => sameGroup),
    weights: model?.weights ?? "unknown",
  };
}

interface LabelledPhoto {
  readonly original: string;
  readonly hash: string;
  readonly position: number | null;
  readonly embedding: number | null;
}

function readLabelledPhoto(
  database: PhotoDatabase,
  {
    root,
    folder,
    label: { file, original },
    model,
  }: {
    readonly root: string;
    readonly folder: string;
    readonly label: PhotoLabel;
    readonly model: IndexModel | undefined;
  },
): LabelledPhoto {
  const row = database.get<Omit<LabelledPhoto, "original">>(
    `SELECT p.hash, p.position, e.id AS embedding
     FROM photos p LEFT JOIN embeddings e ON e.model = ? AND e.md5 = p.md5
     WHERE p.path = ? AND p.state = 'present'`,
    model?.id ?? 0,
    join(root, ...file.split("/")),
  );
  if (row !== undefined) return { ...row, original };
  throw new DedupeError(
    "usage",
    `'${file}' of the labels is not in '${database.file}': scan '${folder}' first`,
  );
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
  const scores = limits.map((limit) => ({
    limit,
    ...scoreOf(pairs, (pair) => isFound(pair, limit)),
  }));
  const harmonicMean = ({ precision, recall }: PrecisionRecall) =>
    (2 * precision * recall) / (precision + recall || 1);
  return { scores, best: scores.reduce((x, y) => (harmonicMean(y) > harmonicMean(x) ? y : x)) };
}

function scoreOf(
  pairs: readonly LabelledPair[],
  isFound: (pair: LabelledPair) => boolean,
): PrecisionRecall {
  const same = pairs.filter((pair) => pair.same).length;
  const found = pairs.filter(isFound);
  const right = found.filter((pair) => pair.same).length;
  return {
    precision: found.length === 0 ? 1 : right / found.length,
    recall: same === 0 ? 1 : right / same,
  };
}
