import { unitLength } from "./compare-models.ts";

/** Accuracy of embeddings for the tasks that they are used for, instead of their distance from a reference. */

/** Precision and recall of a threshold for pairs of duplicates. */
export interface DuplicateScore {
  /** Similarity from which a pair counts as duplicates. */
  readonly threshold: number;
  /** Share of the found pairs that are duplicates. */
  readonly precision: number;
  /** Share of the duplicates that were found. */
  readonly recall: number;
}

/**
 * Share of the vectors whose nearest neighbour by cosine is the same in both lists.
 *
 * @param expected - Two or more vectors, of the reference.
 * @param actual - Vectors of the same items, in the same order.
 */
export function neighbourAgreement(
  expected: readonly Float32Array[],
  actual: readonly Float32Array[],
): number {
  const [a, b] = [nearestNeighbours(expected), nearestNeighbours(actual)];
  return a.filter((neighbour, index) => neighbour === b[index]).length / a.length;
}

/** Index of the nearest other vector by cosine, for each vector. */
export function nearestNeighbours(vectors: readonly Float32Array[]): readonly number[] {
  const units = vectors.map(unitLength);
  return units.map((unit, index) => {
    let [best, nearest] = [-Infinity, -1];
    for (const [other, candidate] of units.entries()) {
      const value = other === index ? -Infinity : dot(unit, candidate);
      if (value > best) [best, nearest] = [value, other];
    }
    return nearest;
  });
}

/** Returns the cosine of two vectors by their indices. */
export function cosines(vectors: readonly Float32Array[]): (a: number, b: number) => number {
  const units = vectors.map(unitLength);
  return (a, b) => dot(units[a]!, units[b]!);
}

/**
 * Returns the threshold with the highest harmonic mean of precision and recall.
 *
 * @param labels - Items with the same label are duplicates.
 * @param similarityOf - Similarity of two items by their indices.
 * @throws {Error} if no two labels are equal
 */
export function bestDuplicateScore(
  labels: readonly string[],
  similarityOf: (a: number, b: number) => number,
): DuplicateScore {
  const pairs = labels.flatMap((label, index) =>
    labels.slice(index + 1).map((other, next) => ({
      similarity: similarityOf(index, index + 1 + next),
      same: label === other,
    })),
  );
  pairs.sort((a, b) => b.similarity - a.similarity);
  const duplicates = pairs.filter(({ same }) => same).length;
  if (duplicates === 0) throw new Error("no two labels are equal");
  let best: DuplicateScore = { threshold: 1, precision: 0, recall: 0 };
  let right = 0;
  for (const [index, { similarity, same }] of pairs.entries()) {
    if (same) right++;
    // a threshold includes all pairs of equal similarity
    if (pairs[index + 1]?.similarity === similarity) continue;
    const precision = right / (index + 1);
    const score = { threshold: similarity, precision, recall: right / duplicates };
    if (harmonicMean(score) > harmonicMean(best)) best = score;
  }
  return best;
}

export function harmonicMean({ precision, recall }: Omit<DuplicateScore, "threshold">): number {
  return precision + recall === 0 ? 0 : (2 * precision * recall) / (precision + recall);
}

function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
