import { join } from "node:path";
import {
  type EvaluateResult,
  type Evaluation,
  evaluate,
  type PhotoLabel,
} from "../../examples/photo-dedupe/evaluate.ts";
import { defaultConfirmedBits } from "../../examples/photo-dedupe/perceptual-hash.ts";
import { openPhotoDatabase } from "../../examples/photo-dedupe/photo-database.ts";
import { nearDuplicates } from "../../examples/search/near-duplicates.ts";
import { percent } from "../../examples/search/report.ts";
import { readTable } from "../../examples/search/table.ts";

/** Index with the embeddings of one precision of the model. */
export interface EvaluatedIndex {
  readonly name: string;
  readonly folder: string;
}

const heading = `  ${"".padEnd(40)}${"limit".padStart(12)}  precision    recall`;

/** Prints the best precision and recall of the perceptual hash, of the embeddings of each index, and of embeddings that the hash confirms. */
export async function printComparison(
  indexes: readonly EvaluatedIndex[],
  photos: string,
): Promise<void> {
  const results: { readonly name: string; readonly result: EvaluateResult }[] = [];
  for (const { name, folder } of indexes) {
    const database = openPhotoDatabase(folder);
    try {
      const result = await evaluate(database, photos, { confirm: defaultConfirmedBits });
      results.push({ name, result });
    } finally {
      database.close();
    }
  }
  console.log(heading);
  const [first] = results;
  if (first !== undefined) printBest("perceptual hash", "bits", first.result.hash);
  for (const { name, result } of results) {
    printBest(`${name} embeddings`, "cosine", result.embedding);
    printBest(`${name} embeddings confirmed by the hash`, "cosine", result.confirmed);
  }
}

function printBest(name: string, unit: string, evaluation: Evaluation | undefined): void {
  if (evaluation === undefined) return;
  printRow(name, unit, evaluation.best);
}

function printRow(name: string, unit: string, score: Evaluation["best"]): void {
  const { limit, precision, recall } = score;
  const limitText = `${limit} ${unit}`.padStart(12);
  console.log(`  ${name.padEnd(40)}${limitText}    ${percent(precision)}   ${percent(recall)}`);
}

/** Prints precision and recall of the near duplicates in the table of a bulk job, by minimum cosine. */
export async function printTableDuplicates(
  job: string,
  photos: string,
  labels: readonly PhotoLabel[],
): Promise<void> {
  const limits = [0.95, 0.9, 0.8, 0.7, 0.6, 0.5];
  const originals = new Map(labels.map(({ file, original }) => [join(photos, file), original]));
  const later = (label: PhotoLabel, i: number) =>
    labels.slice(i + 1).filter(({ original }) => original === label.original);
  const duplicates = labels.flatMap(later).length;
  const table = await readTable(job);
  const pairs = await nearDuplicates(table, { threshold: Math.min(...limits) });
  console.log(heading);
  for (const limit of limits) {
    const found = pairs.filter(({ cosine }) => cosine >= limit);
    const right = found.filter(({ a, b }) => {
      const [first, second] = [a, b].map((row) => originals.get(table.uris[row]!));
      return first !== undefined && first === second;
    }).length;
    const score = { limit, precision: right / (found.length || 1), recall: right / duplicates };
    printRow("near duplicates in the table", "cosine", score);
  }
}
