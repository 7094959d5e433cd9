import { clientOptionsFromEnv, defaultModel } from "@clipstack/client";
import { Command, Option } from "commander";
import { numberIn } from "../search/program.ts";
import { addQueryOptions, type QueryOptions, queryHelp } from "../search/query-client.ts";
import { counted, openProgress, printable } from "../search/report.ts";
import type { EmbedOptions } from "./embed.ts";
import type { GroupOptions } from "./group.ts";
import { linkages } from "./linkage.ts";
import packageJson from "./package.json" with { type: "json" };
import { defaultConfirmedBits } from "./perceptual-hash.ts";
import type { PhotoDatabase } from "./photo-database.ts";

const indexOption = () =>
  new Option("--index <folder>", "index of the photos").default("photos-index");
const modelOption = (text = "model of the embeddings; default: the only one in the index") =>
  new Option("--model <name>", text);
const confirmOption = () =>
  new Option(
    "--confirm <bits>",
    "maximum number of different bits out of 64 in the perceptual hashes of photos with similar embeddings; 64 accepts all",
  )
    .argParser(numberIn(0, 64))
    .default(defaultConfirmedBits);

/** Returns the command line, used by `main.ts` and by a test of the documentation. */
export function dedupeProgram(): Command {
  const program = new Command("clipstack-dedupe")
    .description("Find near-duplicate photos: scan, embed, group, review.")
    .version(packageJson.version)
    .showHelpAfterError("(run with --help for usage and examples)")
    .addHelpText("after", programHelp);
  addScan(program);
  addEmbed(program);
  addGroup(program);
  addSearch(program);
  addReview(program);
  addEvaluate(program);
  return program;
}

const programHelp = `
Exit codes: 0 success, 1 the command failed, 2 wrong usage or settings.

Example:
  $ npx clipstack-dedupe scan ~/Pictures
  $ npx clipstack-dedupe embed
  $ npx clipstack-dedupe group
  $ npx clipstack-dedupe review`;

interface IndexOption {
  readonly index: string;
}

/** Opens an index for one command. */
async function withIndex<Result>(
  { index }: IndexOption,
  work: (database: PhotoDatabase) => Promise<Result>,
  missing: "create" | "fail" = "fail",
): Promise<Result> {
  const { openPhotoDatabase } = await import("./photo-database.ts");
  const database = openPhotoDatabase(index, missing);
  try {
    return await work(database);
  } finally {
    database.close();
  }
}

async function printWeights({ weights }: { readonly weights: string }): Promise<void> {
  const { randomWeightsText } = await import("./embeddings.ts");
  if (weights === "random") console.log(randomWeightsText);
}

function addScan(program: Command): void {
  program
    .command("scan")
    .description("list the photos of a folder: JPEG, PNG, WebP and HEIC")
    .argument("<folder>", "searched with all its subfolders; links are not followed")
    .addOption(indexOption())
    .addHelpText(
      "after",
      `
A photo is read again only if its size or time has changed, so a scan can be stopped and repeated. Several folders can be
scanned into one index.`,
    )
    .action(async (folder: string, args: IndexOption) => {
      const { scan, scannedFolder } = await import("./scan.ts");
      // before an index is created
      const root = await scannedFolder(folder);
      const { read, unchanged, gone, unreadable, closedFolders } = await withIndex(
        args,
        (database) => scan(database, { folder: root, progress: openProgress() }),
        "create",
      );
      console.log(
        `${counted(read, "photo")} read, ${unchanged} unchanged, ${gone} gone, ${unreadable} cannot be read`,
      );
      if (closedFolders > 0) console.log(`${counted(closedFolders, "folder")} cannot be listed`);
    });
}

function addEmbed(program: Command): void {
  program
    .command("embed")
    .description("embed the photos without an embedding, with 'clipstack bulk'")
    .addOption(indexOption())
    .addOption(modelOption("model of the catalogue; default: INFERENCE_MODEL, or openclip-vit-b32"))
    .option("--replace", "embed all photos again, for example with other weights", false)
    .option("--weights <file>", "tiny, generated, or an ONNX file (default: the model repository)")
    .option("--precision <name>", "file of the model: fp32, fp16 or int8")
    .option("--triton <address>", "embed with this Triton server, host:port of gRPC")
    .option("--workers <number>", "processes that share the cores", numberIn(1, 256))
    .option(
      "--patience <seconds>",
      "maximum time to retry while the Triton server is unavailable (default: 600)",
      numberIn(0, 86_400),
    )
    .addHelpText(
      "after",
      `
A run that was stopped or killed is resumed by the next one. The folder of each model in the index is one of 'clipstack bulk', for
its commands status and verify.

Examples:
  $ npx clipstack-dedupe embed --model efficientnet-lite0
  $ npx clipstack-dedupe embed --triton gpu-host:8021`,
    )
    .action(async (args: Partial<EmbedOptions> & IndexOption & { replace: boolean }) => {
      const { embed } = await import("./embed.ts");
      const model = args.model ?? modelOfEnv() ?? defaultModel.name;
      const result = await withIndex(args, (database) =>
        embed(database, { ...args, model, progress: openProgress() }),
      );
      const { embedded, failed, imagesPerSecond } = result;
      console.log(
        `${counted(embedded, "photo")} embedded (${imagesPerSecond.toFixed(1)} images/s), ${failed} cannot be embedded`,
      );
      await printWeights(result);
    });
}

function modelOfEnv(): string | undefined {
  const { model } = clientOptionsFromEnv(process.env);
  return typeof model === "string" ? model : model?.name;
}

function addGroup(program: Command): void {
  program
    .command("group")
    .description("group near-duplicate photos")
    .addOption(indexOption())
    .addOption(
      new Option("--by <property>", "property to compare")
        .choices(["embedding", "hash"])
        .default("embedding"),
    )
    .addOption(modelOption())
    .option("--threshold <cosine>", "minimum cosine of two embeddings", numberIn(-1, 1), 0.7)
    .addOption(confirmOption())
    .option(
      "--distance <bits>",
      "with --by hash: maximum number of different bits out of 64",
      numberIn(0, 64),
      12,
    )
    .addOption(
      new Option(
        "--linkage <linkage>",
        "complete: every two photos of a group are similar; chain: they are connected by similar photos",
      )
        .choices(linkages)
        .default("complete"),
    )
    .option("--list", "print the photos of each group", false)
    .action(async (args: Omit<GroupOptions, "progress"> & IndexOption & { list: boolean }) => {
      const { group } = await import("./group.ts");
      const result = await withIndex(args, (database) =>
        group(database, { ...args, progress: openProgress() }),
      );
      const { groups, photos, withoutEmbedding, compared, how, seconds } = result;
      if (args.list) {
        for (const paths of groups) console.log(`${paths.map(printable).join("\n")}\n`);
      }
      console.log(
        `${counted(groups.length, "group")} with ${groups.flat().length} of ${counted(photos, "photo")} (${how}; ${seconds.toFixed(1)} s)`,
      );
      if (args.by === "embedding")
        console.log(
          `${counted(compared, "photo")} compared; stored pairs of earlier runs are reused`,
        );
      if (withoutEmbedding > 0)
        console.log(`${counted(withoutEmbedding, "photo")} without an embedding: not compared`);
      await printWeights(result);
    });
}

interface SearchArguments extends IndexOption, QueryOptions {
  readonly model?: string;
  readonly limit: number;
}

function addSearch(program: Command): void {
  const command = program
    .command("search")
    .description("list the photos closest to a text, by a model that embeds texts")
    .argument("<text>", "such as 'a dog on a beach'")
    .addOption(indexOption())
    .addOption(modelOption())
    .option("--limit <photos>", "maximum number of photos", numberIn(1, 100_000), 20);
  addQueryOptions(command)
    .addHelpText(
      "after",
      `
Each line has the cosine of text and photo, which depends on the model. Photos with the same bytes are listed together and count as one.
${queryHelp}

Example:
  $ npx clipstack-dedupe search "a dog on a beach" --limit 5`,
    )
    .action(async (text: string, { model = modelOfEnv(), ...args }: SearchArguments) => {
      const { search } = await import("./search.ts");
      const result = await withIndex(args, (database) =>
        search(database, { ...args, text, model, note: openProgress().note }),
      );
      for (const { cosine, paths } of result.hits) {
        for (const path of paths)
          console.log(`${cosine.toFixed(4).padStart(7)}  ${printable(path)}`);
      }
      await printWeights(result);
    });
}

function addReview(program: Command): void {
  program
    .command("review")
    .description("show the groups in a browser on this machine: keep, reject, move, restore")
    .addOption(indexOption())
    .option(
      "--port <port>",
      "port of the review page; 0 selects a free one",
      numberIn(0, 65_535),
      8000,
    )
    .addHelpText(
      "after",
      `
Nothing is deleted: "Move rejected" moves files into 'clipstack-rejected' of the scanned folder, and the page restores them.`,
    )
    .action(async (args: IndexOption & { readonly port: number }) => {
      const { serveReview } = await import("./review-server.ts");
      const onListening = (url: string) => console.log(`review page: ${url} (stop with Ctrl-C)`);
      const { stopSignal } = await import("../search/local-page.ts");
      await withIndex(args, (database) =>
        serveReview(database, { port: args.port, signal: stopSignal(), onListening }),
      );
    });
}

function addEvaluate(program: Command): void {
  program
    .command("evaluate")
    .description("print precision and recall on labelled photos")
    .argument("<folder>", "scanned photos with labels.json")
    .addOption(indexOption())
    .addOption(modelOption())
    .addOption(confirmOption())
    .action(async (folder: string, args: IndexOption & { model?: string; confirm: number }) => {
      const { evaluate, evaluationText } = await import("./evaluate.ts");
      const result = await withIndex(args, (database) => evaluate(database, folder, args));
      console.log(evaluationText(result, args.confirm));
      await printWeights(result);
    });
}
