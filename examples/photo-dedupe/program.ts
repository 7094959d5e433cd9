import { clientBackends, clientModes } from "@clipstack/client";
import { Command, InvalidArgumentError, Option } from "commander";
import { linkages } from "./linkage.ts";
import packageJson from "./package.json" with { type: "json" };
import { defaultConfirmedBits } from "./perceptual-hash.ts";

/** Loads the code of the commands when one runs, not for `--help`. */
const commands = () => import("./commands.ts");

const databaseOption = () =>
  new Option("--db <file>", "index of the photos, a SQLite file").default("photos.db");
const modelOption = (description: string) => new Option("--model <name>", description);
const modelFileOption = () =>
  new Option("--model-file <file>", "ONNX file of the model on this machine");
const backendOption = () =>
  new Option("--backend <backend>", "kind of service; default: embed").choices(clientBackends);
const modeOption = () =>
  new Option(
    "--mode <mode>",
    "on this machine, with the service, or (default: auto) on this machine if the service is unavailable",
  ).choices(clientModes);
const urlOption = () => new Option("--url <url>", "http://host:port of the service");
const confirmOption = () =>
  new Option(
    "--confirm <bits>",
    "maximum number of different bits out of 64 in the perceptual hashes of photos with similar embeddings; 64 accepts all",
  )
    .argParser(numberIn(0, 64))
    .default(defaultConfirmedBits);
const portOption = () =>
  new Option("--port <port>", "port of the review page; 0 selects a free one")
    .argParser(numberIn(0, 65_535))
    .default(8000);

/** Returns the command line, used by `main.ts` and by a test of the documentation. */
export function dedupeProgram(): Command {
  const program = new Command("clipstack-dedupe")
    .description("Find near-duplicate photos: scan, embed, group, review.")
    .version(packageJson.version)
    .showHelpAfterError("(run with --help for usage and examples)")
    .addHelpText(
      "after",
      `
Exit codes: 0 success, 1 the command failed, 2 wrong usage or settings.

Example:
  $ npx clipstack-dedupe scan ~/Pictures
  $ npx clipstack serve &                     # or any deployed environment
  $ npx clipstack-dedupe embed
  $ npx clipstack-dedupe group
  $ npx clipstack-dedupe review`,
    );
  addScan(program);
  addEmbed(program);
  addGroup(program);
  addSearch(program);
  addReview(program);
  addEvaluate(program);
  program.exitOverride();
  for (const command of program.commands) command.exitOverride();
  return program;
}

function addScan(program: Command): void {
  program
    .command("scan")
    .description("read the photos of a folder: JPEG, PNG, WebP and HEIC")
    .argument("<folder>", "searched with all its subfolders; links are not followed")
    .addOption(databaseOption())
    .addHelpText(
      "after",
      `
A photo is read again only if its size or time has changed, so a scan can be stopped and repeated. Several folders can be
scanned into one file.`,
    )
    .action(async (folder, options) => (await commands()).scanCommand(folder, options));
}

function addEmbed(program: Command): void {
  program
    .command("embed")
    .description("embed the photos without an embedding, on this machine or with a service")
    .addOption(databaseOption())
    .addOption(backendOption())
    .addOption(modeOption())
    .addOption(urlOption())
    .addOption(modelOption("model of the catalogue or of the service; default: openclip-vit-b32"))
    .addOption(modelFileOption())
    .option(
      "--wait <seconds>",
      "maximum time to retry while the service is unavailable",
      numberIn(0, 86_400),
      600,
    )
    .option("--replace", "replace embeddings by other weights of the model", false)
    .addHelpText(
      "after",
      `
Defaults come from the environment: INFERENCE_BACKEND, INFERENCE_MODE, INFERENCE_SERVICE_URL, INFERENCE_MODEL, TRITON_GRPC_URL,
TRITON_MODEL, INFERENCE_API_KEY. A run that was stopped or killed is resumed by the next one.

Examples:
  $ npx clipstack-dedupe embed --mode local
  $ npx clipstack-dedupe embed --mode local --model efficientnet-lite0
  $ npx clipstack-dedupe embed --mode remote --url http://gpu-host:8002
  $ npx clipstack-dedupe embed --backend triton_grpc --url http://gpu-host:8010 --mode remote`,
    )
    .action(async (options) => (await commands()).embedCommand(options));
}

function addGroup(program: Command): void {
  program
    .command("group")
    .description("group near-duplicate photos")
    .addOption(databaseOption())
    .addOption(
      new Option("--by <property>", "property to compare")
        .choices(["embedding", "hash"])
        .default("embedding"),
    )
    .addOption(modelOption("model of the embeddings; default: the only one in the index"))
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
    .action(async (options) => (await commands()).groupCommand(options));
}

function addSearch(program: Command): void {
  program
    .command("search")
    .description("list the photos closest to a text, by a model that embeds texts")
    .argument("<text>", "such as 'a dog on a beach'")
    .addOption(databaseOption())
    .addOption(modelOption("model of the embeddings; default: the only one in the index"))
    .addOption(
      new Option("--limit <photos>", "maximum number of photos")
        .argParser(numberIn(1, 100_000))
        .default(20),
    )
    .addOption(backendOption())
    .addOption(modeOption())
    .addOption(urlOption())
    .addOption(modelFileOption())
    .option("--text-model-file <file>", "ONNX file of the model's text tower on this machine")
    .addHelpText(
      "after",
      `
Each line has the cosine of text and photo, which depends on the model. Photos with the same bytes are listed together and count as one.
The environment variables are those of 'embed', and INFERENCE_TEXT_MODEL_PATH.

Example:
  $ npx clipstack-dedupe search "a dog on a beach" --limit 5`,
    )
    .action(async (text, options) => (await commands()).searchCommand(text, options));
}

function addReview(program: Command): void {
  program
    .command("review")
    .description("show the groups in a browser on this machine: keep, reject, move, restore")
    .addOption(databaseOption())
    .addOption(portOption())
    .addHelpText(
      "after",
      `
Nothing is deleted: "Move rejected" moves files into 'clipstack-rejected' of the scanned folder, and the page restores them.`,
    )
    .action(async (options) => (await commands()).reviewCommand(options));
}

function addEvaluate(program: Command): void {
  program
    .command("evaluate")
    .description("print precision and recall on labelled photos")
    .argument("<folder>", "scanned photos with labels.json")
    .addOption(databaseOption())
    .addOption(modelOption("model of the embeddings; default: the only one in the index"))
    .addOption(confirmOption())
    .action(async (folder, options) => (await commands()).evaluateCommand(folder, options));
}

/** Parser of an option's number. */
function numberIn(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (value.trim() !== "" && number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
  };
}
