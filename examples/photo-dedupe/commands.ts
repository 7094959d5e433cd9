import { join } from "node:path";
import {
  type ClientBackend,
  type ClientMode,
  clientOptionsFromEnv,
  defaultModel,
  modelCatalogue,
  openInferenceClient,
} from "@clipstack/client";
import { DedupeError } from "./dedupe-error.ts";
import { type EmbedResult, embed } from "./embed.ts";
import {
  type EvaluateOptions,
  type EvaluateResult,
  type Evaluation,
  evaluate,
} from "./evaluate.ts";
import { type GroupOptions, group } from "./group.ts";
import { randomWeightsText } from "./index-model.ts";
import { openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";
import { openProgress, type Progress, percent, printable } from "./progress.ts";
import { serveReview } from "./review-server.ts";
import { type ScanResult, scan } from "./scan.ts";
import { findTextModel, search } from "./search.ts";

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

interface ClientArguments {
  readonly backend?: ClientBackend;
  readonly model?: string;
  readonly mode?: ClientMode;
  readonly url?: string;
  readonly modelFile?: string;
  readonly textModelFile?: string;
}

/**
 * Opens the client that options and environment select, with the location of its model for messages. The files on this machine are by
 * default those that `clipstack model pull`, `import` and `generate` write to `model_repository` of the working directory.
 */
async function openClient(
  args: ClientArguments,
  model: string,
  { texts, progress }: { readonly texts: boolean; readonly progress: Progress },
) {
  const fromEnv = clientOptionsFromEnv(process.env);
  const { backend = fromEnv.backend, mode = fromEnv.mode, url = fromEnv.serviceUrl } = args;
  const spec = modelCatalogue.get(model);
  const textFile =
    args.textModelFile ?? fromEnv.textModelPath ?? (spec && modelFile(model, "_text"));
  const client = await openInferenceClient({
    ...fromEnv,
    backend,
    model,
    mode,
    serviceUrl: url,
    modelPath: args.modelFile ?? fromEnv.modelPath ?? (spec && modelFile(model)),
    textModelPath: texts ? textFile : undefined,
    onFallback: (reason) => progress.note(`${reason}: using the model on this machine`),
  });
  const location = mode === "local" ? "this machine" : `${backend} at ${url ?? "its default port"}`;
  return { client, location };
}

/** Path of a tower in the model repository of the working directory. */
function modelFile(model: string, tower: "" | "_text" = ""): string {
  return join("model_repository", `${model.replaceAll("-", "_")}${tower}`, "1", "model.onnx");
}

interface EmbedArguments extends DatabaseOption, ClientArguments {
  readonly wait: number;
  readonly replace: boolean;
}

/** `clipstack-dedupe embed` */
export async function embedCommand(args: EmbedArguments): Promise<void> {
  const model = args.model ?? modelOfEnv() ?? defaultModel.name;
  const progress = openProgress();
  const result = await withDatabase(openPhotoDatabase(args.db), async (database, signal) => {
    const { client, location } = await openClient(args, model, { texts: false, progress });
    try {
      return await embed(database, {
        client,
        model,
        location,
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

function modelOfEnv(): string | undefined {
  const { model } = clientOptionsFromEnv(process.env);
  return typeof model === "string" ? model : model?.name;
}

interface SearchArguments extends DatabaseOption, ClientArguments {
  readonly limit: number;
}

/** `clipstack-dedupe search <text>` */
export async function searchCommand(text: string, args: SearchArguments): Promise<void> {
  const progress = openProgress();
  const { hits, weights } = await withDatabase(openPhotoDatabase(args.db), async (database) => {
    const model = findTextModel(database, args.model ?? modelOfEnv());
    const { client, location } = await openClient(args, model.name, { texts: true, progress });
    try {
      return await search(database, model, { client, location, text, limit: args.limit });
    } finally {
      await client.close();
    }
  });
  for (const { cosine, paths } of hits) {
    for (const path of paths) console.log(`${cosine.toFixed(4).padStart(7)}  ${printable(path)}`);
  }
  if (weights === "random") console.log(randomWeightsText);
}

/** `clipstack-dedupe group` */
export async function groupCommand(
  args: GroupOptions & DatabaseOption & { readonly list: boolean },
): Promise<void> {
  const { groups, photos, withoutEmbedding, compared, how, weights, seconds } = await withDatabase(
    openPhotoDatabase(args.db),
    (database) => group(database, args),
  );
  if (args.list) {
    for (const paths of groups) console.log(`${paths.map(printable).join("\n")}\n`);
  }
  console.log(
    `${groups.length} groups with ${groups.flat().length} of ${photos} photos (${how}; ${seconds.toFixed(1)} s)`,
  );
  if (args.by === "embedding")
    console.log(`${compared} photos compared; stored pairs of earlier runs are reused`);
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

/** `clipstack-dedupe evaluate <folder>` */
export async function evaluateCommand(
  folder: string,
  args: EvaluateOptions & DatabaseOption,
): Promise<void> {
  const result: EvaluateResult = await withDatabase(openPhotoDatabase(args.db), (database) =>
    evaluate(database, folder, args),
  );
  const { photos, duplicates, hash, embedding, confirmed, groups, weights } = result;
  console.log(`${photos} labelled photos, ${duplicates} duplicate pairs`);
  printEvaluation("perceptual hash alone", "different bits", hash);
  if (embedding !== undefined && confirmed !== undefined) {
    printEvaluation("embeddings alone", "minimum cosine", embedding);
    const by = `embeddings, confirmed by a hash with at most ${args.confirm} different bits`;
    printEvaluation(by, "minimum cosine", confirmed);
  } else console.log("\nno embeddings: run 'clipstack-dedupe embed' first");
  if (groups !== undefined) {
    const { precision, recall } = groups;
    console.log(
      `\npairs in the same group: precision ${percent(precision)}, recall ${percent(recall)}`,
    );
  }
  if (weights === "random") console.log(`\n${randomWeightsText}`);
}

function printEvaluation(name: string, limitName: string, { scores, best }: Evaluation): void {
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
