import {
  type EvaluateResult,
  type Evaluation,
  evaluate,
} from "../../examples/photo-dedupe/evaluate.ts";
import { defaultConfirmedBits } from "../../examples/photo-dedupe/perceptual-hash.ts";
import { openPhotoDatabase } from "../../examples/photo-dedupe/photo-database.ts";
import { percent } from "../../examples/search/report.ts";

/** Index with the embeddings of one precision of the model. */
export interface EvaluatedIndex {
  readonly name: string;
  readonly folder: string;
}

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
  console.log(`  ${"".padEnd(40)}${"limit".padStart(12)}  precision    recall`);
  const [first] = results;
  if (first !== undefined) printBest("perceptual hash", "bits", first.result.hash);
  for (const { name, result } of results) {
    printBest(`${name} embeddings`, "cosine", result.embedding);
    printBest(`${name} embeddings confirmed by the hash`, "cosine", result.confirmed);
  }
}

function printBest(name: string, unit: string, evaluation: Evaluation | undefined): void {
  if (evaluation === undefined) return;
  const { limit, precision, recall } = evaluation.best;
  const limitText = `${limit} ${unit}`.padStart(12);
  console.log(`  ${name.padEnd(40)}${limitText}    ${percent(precision)}   ${percent(recall)}`);
}
