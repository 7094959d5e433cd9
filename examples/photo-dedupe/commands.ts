import { fileURLToPath } from "node:url";
import { clientOptionsFromEnv } from "../../client/client-env.ts";
import {
  type ClientBackend,
  type ClientMode,
  openInferenceClient,
} from "../../client/inference-client.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import { DedupeError } from "./dedupe-error.ts";
import { type EmbedResult, embed } from "./embed.ts";
import { type EvaluateResult, type Evaluation, evaluate } from "./evaluate.ts";
import { type GroupOptions, group } from "./group.ts";
import { makePhotos } from "./make-photos.ts";
import { randomWeightsText } from "./model-probe.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { openProgress, printable } from "./progress.ts";
import { serveReview } from "./review-server.ts";
import { type ScanResult, scan } from "./scan.ts";

interface DatabaseOption {
  readonly db: string;
}

/** `clipstack-dedupe scan <folder>` */
export async function scanCommand(folder: string, { db }: DatabaseOption): Promise<void> {
  const result = await withDatabase(openPhotoDatabase(db, "create"), (database, signal) =>
    scan(database, { folder, signal }),
  );
  const { read, unchanged, gone, unreadable, closedFolders }: ScanResult = result;
  console.log(
    `${read} photos read, ${unchanged} unchanged, ${gone} gone, ${unreadable} cannot be read`,
  );
  if (closedFolders > 0) console.log(`${closedFolders} folders cannot be listed`);
  failIfStopped(result);
}

interface EmbedArguments extends DatabaseOption {
  readonly backend?: ClientBackend;
  readonly mode?: ClientMode;
  readonly url?: string;
  readonly modelFile?: string;
  readonly wait: number;
  readonly replace: boolean;
}

/** File written by `clipstack model pull` and `clipstack model generate`. */
const defaultModelFile = fileURLToPath(
  new URL(`../../model_repository/${openclipVitB32.name}/1/model.onnx`, import.meta.url),
);

/** `clipstack-dedupe embed` */
export async function embedCommand(args: EmbedArguments): Promise<void> {
  const fromEnv = clientOptionsFromEnv(process.env);
  const { backend = fromEnv.backend, mode = fromEnv.mode, url = fromEnv.serviceUrl } = args;
  const progress = openProgress();
  const result = await withDatabase(openPhotoDatabase(args.db), async (database, signal) => {
    const client = await openInferenceClient({
      ...fromEnv,
      backend,
      mode,
      serviceUrl: url,
      modelPath: args.modelFile ?? fromEnv.modelPath ?? defaultModelFile,
      onFallback: (reason) => progress.note(`${reason}: using the model on this machine`),
    });
    try {
      return await embed(database, {
        client,
        location: mode === "local" ? "this machine" : `${backend} at ${url ?? "its default port"}`,
        waitSeconds: args.wait,
        replace: args.replace,
        progress,
        signal,
      });
    } finally {
      await client.close();
    }
  });
  const { embedded, failed, remaining, weights, imagesPerSecond }: EmbedResult = result;
  console.log(
    `${embedded} photos embedded (${imagesPerSecond.toFixed(1)} images/s), ${failed} cannot be embedded, ${remaining} remain`,
  );
  if (weights === "random") console.log(randomWeightsText);
  failIfStopped(result);
}

/** `clipstack-dedupe group` */
export async function groupCommand(
  args: GroupOptions & DatabaseOption & { readonly list: boolean },
): Promise<void> {
  const { groups, photos, withoutEmbedding, how, weights, seconds } = await withDatabase(
    openPhotoDatabase(args.db),
    (database) => group(database, args),
  );
  if (args.list) {
    for (const paths of groups) console.log(`${paths.map(printable).join("\n")}\n`);
  }
  console.log(
    `${groups.length} groups with ${groups.flat().length} of ${photos} photos (${how}; ${seconds.toFixed(1)} s)`,
  );
  if (withoutEmbedding > 0)
    console.log(`${withoutEmbedding} photos were not compared: they have no embedding yet`);
  if (weights === "random") console.log(randomWeightsText);
}

/** `clipstack-dedupe review` */
export async function reviewCommand(
  args: DatabaseOption & { readonly port: number },
): Promise<void> {
  await withDatabase(openPhotoDatabase(args.db), (database, signal) =>
    serveReview(database, {
      port: args.port,
      signal,
      onListening: (url) => console.log(`review page: ${url} (stop with Ctrl-C)`),
    }),
  );
}

/** `clipstack-dedupe make-photos <folder>` */
export async function makePhotosCommand(folder: string): Promise<void> {
  const labels = await makePhotos(folder);
  console.log(`${labels.length} photos in ${printable(folder)}`);
}

/** `clipstack-dedupe evaluate <folder>` */
export async function evaluateCommand(folder: string, { db }: DatabaseOption): Promise<void> {
  const { photos, duplicates, hash, embedding, weights }: EvaluateResult = await withDatabase(
    openPhotoDatabase(db),
    (database) => evaluate(database, folder),
  );
  console.log(`${photos} labelled photos, ${duplicates} duplicate pairs`);
  printEvaluation("perceptual hash alone", "different bits", hash);
  if (embedding !== undefined) printEvaluation("embeddings", "minimum cosine", embedding);
  else console.log("\nno embeddings: run 'clipstack-dedupe embed' first");
  if (weights === "random") console.log(`\n${randomWeightsText}`);
}

function printEvaluation(name: string, limitName: string, { scores, best }: Evaluation): void {
  const percent = (share: number) => `${(100 * share).toFixed(1).padStart(5)} %`;
  console.log(`\n${name}:\n  ${limitName.padStart(16)}  precision    recall`);
  for (const score of scores) {
    const limit = String(score.limit).padStart(16);
    const mark = score === best ? "  <- best" : "";
    console.log(`  ${limit}    ${percent(score.precision)}   ${percent(score.recall)}${mark}`);
  }
}

/** Runs `work` until it ends or Ctrl-C aborts its signal, and closes the database. A second Ctrl-C ends the process. */
async function withDatabase<Result>(
  database: PhotoDatabase,
  work: (database: PhotoDatabase, signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const stop = () => controller.abort();
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  try {
    return await work(database, controller.signal);
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
    database.close();
  }
}

function failIfStopped({ stopped }: { readonly stopped: boolean }): void {
  if (stopped) throw new DedupeError("failed", "stopped: run the same command again to resume");
}
