import type { Command } from "commander";
import { databaseOption, withDatabase } from "./command-options.ts";
import { randomWeightsText } from "./embed-command.ts";
import { type EvaluateResult, type Evaluation, evaluate } from "./evaluate.ts";
import { labelsFile } from "./photo-labels.ts";
import { openProgress } from "./progress.ts";
import { shownJson, shownName } from "./shown-name.ts";

/** `clipstack-dedupe evaluate <folder>` and `clipstack-dedupe make-photos <folder>` */
export function registerEvaluate(program: Command): void {
  program
    .command("evaluate")
    .description("print precision and recall on photos of which is known what shows the same")
    .argument("<folder>", `photos that were scanned, with ${labelsFile}`)
    .addOption(databaseOption())
    .option("--json", "print all figures as JSON", false)
    .addHelpText(
      "after",
      `
A pair counts as found when its perceptual hashes differ in few bits, or its embeddings have a large cosine.

Example:
  $ npx clipstack-dedupe make-photos /tmp/photos
  $ npx clipstack-dedupe scan /tmp/photos --db /tmp/photos.db
  $ npx clipstack-dedupe embed --db /tmp/photos.db
  $ npx clipstack-dedupe evaluate /tmp/photos --db /tmp/photos.db`,
    )
    .action(
      async (folder: string, { db, json }: { readonly db: string; readonly json: boolean }) => {
        const result = await withDatabase(db, (database) => evaluate(database, folder));
        if (json) console.log(shownJson(result));
        else for (const line of evaluateText(result)) console.log(line);
      },
    );
}

/** `clipstack-dedupe make-photos <folder>` */
export function registerMakePhotos(program: Command): void {
  program
    .command("make-photos")
    .description(`paint photos and near-duplicates of them, with ${labelsFile}`)
    .argument("<folder>", "where to: a new folder, or an empty one")
    .action(async (folder: string) => {
      const { makePhotos } = await import("./make-photos.ts");
      const progress = openProgress();
      const labels = await makePhotos(folder, (done, total) =>
        progress.update(() => `${done} of ${total} views painted`),
      );
      progress.end();
      console.log(`${labels.length} photos in ${shownName(folder)}`);
    });
}

const percent = (share: number) => `${(100 * share).toFixed(1).padStart(5)} %`;

/** Precision and recall, for people. */
export function evaluateText(result: EvaluateResult): readonly string[] {
  const { photos, duplicates, hash, embedding, weights } = result;
  const lines = [`${photos} labelled photos, ${duplicates} pairs of them show the same`];
  lines.push("", ...evaluationText("perceptual hash alone", "bits that differ", hash));
  if (embedding === undefined) {
    lines.push("", "no embeddings: run 'clipstack-dedupe embed' first");
    return lines;
  }
  lines.push("", ...evaluationText("embeddings", "least cosine", embedding));
  lines.push("", "found with their original, at the best limit:");
  lines.push(`  ${"".padEnd(14)}${"hash".padStart(8)}${"embedding".padStart(12)}`);
  for (const [change, share] of Object.entries(hash.recallByChange).sort()) {
    const other = embedding.recallByChange[change] ?? 0;
    lines.push(
      `  ${shownName(change).padEnd(14)}${percent(share).padStart(8)}${percent(other).padStart(12)}`,
    );
  }
  if (weights === "random") lines.push("", randomWeightsText);
  return lines;
}

function evaluationText(
  name: string,
  limitName: string,
  { scores, best }: Evaluation,
): readonly string[] {
  return [
    `${name}:`,
    `  ${limitName.padStart(16)}  precision    recall`,
    ...scores.map((score) => {
      const mark = score === best ? "  <- best" : "";
      return `  ${String(score.limit).padStart(16)}    ${percent(score.precision)}   ${percent(score.recall)}${mark}`;
    }),
  ];
}
