import { Command, InvalidArgumentError, Option } from "commander";
import { clientBackends, clientModes } from "../../client/inference-client.ts";
import { uiPorts } from "../../contract/ports.ts";
import packageJson from "./package.json" with { type: "json" };

/** Loads the code of the commands when one runs, not for `--help`. */
const commands = () => import("./commands.ts");

const databaseOption = () =>
  new Option("--db <file>", "index of the photos, a SQLite file").default("photos.db");
const portOption = (port: number) =>
  new Option("--port <port>", "port of the review page; 0 selects a free one")
    .argParser(numberIn(0, 65_535))
    .default(port);

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
  addReview(program);
  addDemo(program);
  program.exitOverride();
  for (const command of program.commands) command.exitOverride();
  return program;
}

function addScan(program: Command): void {
  program
    .command("scan")
    .description("read the photos of a folder: JPEG, PNG and WebP")
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
    .addOption(
      new Option("--backend <backend>", "kind of service; default: embed").choices(clientBackends),
    )
    .addOption(
      new Option(
        "--mode <mode>",
        "on this machine, with the service, or (default: auto) on this machine if the service is unavailable",
      ).choices(clientModes),
    )
    .option("--url <url>", "http://host:port of the service")
    .option("--model-file <file>", "ONNX file of the model on this machine")
    .option(
      "--wait <seconds>",
      "maximum time to retry while the service is unavailable",
      numberIn(0, 86_400),
      600,
    )
    .option("--replace", "replace embeddings by another model", false)
    .addHelpText(
      "after",
      `
Defaults come from the environment: INFERENCE_BACKEND, INFERENCE_MODE, INFERENCE_SERVICE_URL, TRITON_GRPC_URL, TRITON_MODEL,
INFERENCE_API_KEY. A run that was stopped or killed is resumed by the next one.

Examples:
  $ npx clipstack-dedupe embed --mode local
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
    .option("--threshold <cosine>", "minimum cosine of two embeddings", numberIn(-1, 1), 0.95)
    .option(
      "--distance <bits>",
      "with --by hash: maximum number of different bits out of 64",
      numberIn(0, 64),
      8,
    )
    .option("--list", "print the photos of each group", false)
    .action(async (options) => (await commands()).groupCommand(options));
}

function addReview(program: Command): void {
  program
    .command("review")
    .description("show the groups in a browser on this machine: keep, reject, move, restore")
    .addOption(databaseOption())
    .addOption(portOption(uiPorts.ui))
    .addHelpText(
      "after",
      `
Nothing is deleted: "Move rejected" moves files into 'clipstack-rejected' of the scanned folder, and the page restores them.`,
    )
    .action(async (options) => (await commands()).reviewCommand(options));
}

function addDemo(program: Command): void {
  program
    .command("make-photos")
    .description("paint photos and near-duplicates, with labels")
    .argument("<folder>", "a new or empty folder")
    .action(async (folder) => (await commands()).makePhotosCommand(folder));
  program
    .command("evaluate")
    .description("print precision and recall on labelled photos")
    .argument("<folder>", "scanned photos with labels.json")
    .addOption(databaseOption())
    .action(async (folder, options) => (await commands()).evaluateCommand(folder, options));
  program
    .command("demo")
    .description("run all steps on painted photos with a local server; about a minute")
    .option(
      "--model <model>",
      "tiny, generated or an ONNX file, as in clipstack serve",
      "generated",
    )
    .addOption(portOption(uiPorts.demo))
    .option("--exit", "exit before the review page", false)
    .addHelpText(
      "after",
      "\nPhotos and index are in a temporary folder, which is removed at the end.",
    )
    .action(async (options) => (await import("./demo.ts")).demoCommand(options));
}

/** Parser of an option's number. */
function numberIn(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (value.trim() !== "" && number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
  };
}
