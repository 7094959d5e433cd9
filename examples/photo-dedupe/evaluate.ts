import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { cosine } from "../search/query-client.ts";
import { CommandError, openProgress, percent, reasonOf } from "../search/report.ts";
import { findModel, modelNames, readVectors, type Weights } from "./embeddings.ts";
import { readFacts } from "./facts.ts";
import { readGrouping } from "./group.ts";
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
interface PrecisionRecall {
  /** Share of the found pairs that are duplicates; 1 if none was found. */
  readonly precision: number;
  /** Share of the duplicate pairs that were found. */
  readonly recall: number;
}

export interface Evaluation {
  /** By limit, in bits or as cosine. */
  readonly scores: readonly (PrecisionRecall & { readonly limit: number })[];
  /** The score with the highest harmonic mean of precision and recall. */
  readonly best: PrecisionRecall & { readonly limit: number };
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

interface LabelledPair {
  readonly same: boolean;
  /** Distance of the perceptual hashes. */
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
 * @param options - `confirm`: maximum distance of the hashes of a confirmed pair, in bits.
 * @throws {CommandError} if the labels are missing or invalid, or a labelled photo was not scanned
 */
export async function evaluate(
  database: PhotoDatabase,
  folder: string,
  { model: name, confirm }: { readonly model?: string; readonly confirm: number },
): Promise<EvaluateResult> {
  const labels = await readLabels(join(folder, labelsFile));
  const root = await realpath(folder);
  const read = () => labels.map((label) => labelledPhoto(database, { root, folder, label }));
  const contents = new Set(read().map(({ sha256 }) => sha256));
  await readFacts(database, openProgress(), contents);
  const photos = read();
  const isEmbedded = name !== undefined || modelNames(database).length > 0;
  const model = isEmbedded ? findModel(database, name) : undefined;
  const vectors = model && (await readVectors(database, model, contents));
  const isComplete = photos.every(({ sha256 }) => vectors?.of(sha256) !== undefined);
  const pairs = photos.flatMap((a, i) =>
    photos.slice(i + 1).map((b) => ({
      same: a.original === b.original,
      bits: hashDistance(a.hash, b.hash),
      cosine: isComplete ? cosine(vectors!.of(a.sha256)!, vectors!.of(b.sha256)!) : 0,
      sameGroup: a.position !== null && a.position === b.position,
    })),
  );
  const byEmbedding = (bits: number) =>
    isComplete
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

function labelledPhoto(
  database: PhotoDatabase,
  options: { readonly root: string; readonly folder: string; readonly label: PhotoLabel },
) {
  const { root, folder, label } = options;
  const row = database.get<{
    readonly sha256: string;
    readonly hash: string;
    readonly position: number | null;
  }>(
    "SELECT sha256, hash, position FROM photos WHERE path = ? AND state = 'present'",
    join(root, label.file),
  );
  if (row !== undefined) return { ...row, original: label.original };
  throw new CommandError(
    "usage",
    `'${label.file}' of the labels is not in '${database.folder}': scan '${folder}' first`,
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
    throw new CommandError("usage", `labels '${file}': ${reason}`, { cause });
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
  return { precision: found.length === 0 ? 1 : right / found.length, recall: right / (same || 1) };
}

export function evaluationText(result: EvaluateResult, confirm: number): string {
  const { photos, duplicates, hash, embedding, confirmed, groups } = result;
  const table = (name: string, unit: string, evaluated: Evaluation | undefined) => [
    ...(evaluated ? [`\n${name}:\n  ${unit.padStart(16)}  precision    recall`] : []),
    ...(evaluated?.scores ?? []).map((score) => {
      const mark = score === evaluated?.best ? "  <- best" : "";
      return `  ${String(score.limit).padStart(16)}    ${percent(score.precision)}   ${percent(score.recall)}${mark}`;
    }),
  ];
  const by = `embeddings, confirmed by a hash with at most ${confirm} different bits`;
  return [
    `${photos} labelled photos, ${duplicates} duplicate pairs`,
    ...table("perceptual hash alone", "different bits", hash),
    ...table("embeddings alone", "minimum cosine", embedding),
    ...table(by, "minimum cosine", confirmed),
    ...(embedding ? [] : ["\nno embeddings: run 'clipstack-dedupe embed' first"]),
    ...(groups
      ? [
          `\npairs in the same group: precision ${percent(groups.precision)}, recall ${percent(groups.recall)}`,
        ]
      : []),
  ].join("\n");
}
