import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { startStatusLine } from "../../bench/run/status-line.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  defaultSeed,
  type GenerateOptions,
  generateModel,
  repositoryModel,
} from "../../model-tools/generate.ts";
import { type ModelInfo, modelInfo } from "../../model-tools/model-info.ts";
import { profiles } from "../../model-tools/vision-transformer.ts";
import { registerModelCheck } from "../model/model-check.ts";
import { registerModelExport } from "../model/model-export.ts";
import { megabytes, requireOwnSidecar, seedOf } from "../model/model-output.ts";
import { registerModelPrepare } from "../model/model-prepare.ts";
import { registerModelPull } from "../model/model-pull.ts";
import { displayPath } from "../project.ts";

interface GenerateArguments {
  readonly profile: GenerateOptions["profile"];
  readonly seed: number;
  readonly output?: string;
  readonly force?: true;
  readonly json?: true;
}

/** `clipstack model …`: subcommands for the model file that the servers load. */
export function registerModel(program: Command): void {
  const model = program.command("model");
  registerModelPull(model);
  registerModelCheck(model);
  registerModelExport(model);
  registerModelPrepare(model);

  model
    .command("generate")
    .description(
      "write the ViT-B/32 image tower as an ONNX file with seeded random weights: same size, speed and signature as " +
        "OpenCLIP's, but meaningless embeddings",
    )
    .addOption(
      new Option("--profile <name>", "vit-b-32 is full size, 351 MB; tiny is under 1 MB, for tests")
        .choices(Object.keys(profiles))
        .default("vit-b-32"),
    )
    .option(
      "--seed <integer>",
      "seed of the weights; the same seed produces the same file",
      seedOf,
      defaultSeed,
    )
    .option("--output <file>", "default: the model repository of this checkout")
    .option("--force", "replace an existing file")
    .option("--json", "print the result as JSON")
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack model generate
  $ npx clipstack model generate --seed 7 --force
  $ npx clipstack model generate --profile tiny --output /tmp/tiny.onnx --json`,
    )
    .action(generate);
}

async function generate(args: GenerateArguments): Promise<void> {
  if (args.output === undefined && args.profile === "tiny") {
    throw new UserError(
      "--profile tiny requires --output: the model repository is for the full-size model",
    );
  }
  const file = args.output === undefined ? repositoryModel : resolve(args.output);
  const path = displayPath(file);

  const before = args.force ? undefined : await modelInfo(file).catch(() => undefined);
  if (before !== undefined) {
    const same = before.architecture === args.profile && before.seed === args.seed;
    if (!same) throw new UserError(`${path} exists; --force replaces it`);
    report(args, path, before, "exists");
    return;
  }
  if (!args.force) await requireOwnSidecar(file);

  let counts = "";
  const progress = startStatusLine(process.stderr, () => counts);
  progress.show(`writing ${path} …`);
  try {
    const info = await generateModel({
      profile: args.profile,
      seed: args.seed,
      file,
      onProgress({ bytes, total }) {
        counts = `${megabytes(bytes)} of ${megabytes(total)} MB`;
      },
    });
    progress.end();
    report(args, path, info, "written");
  } catch (error) {
    progress.end();
    const code = (error as NodeJS.ErrnoException).code;
    if (code === undefined) throw error;
    throw new UserError(`--output ${path} cannot be written: ${code}`, { cause: error });
  }
}

function report(args: GenerateArguments, file: string, info: ModelInfo, action: string): void {
  if (args.json) {
    console.log(JSON.stringify({ file, ...info }, null, 2));
    return;
  }
  console.log(`${file} ${action}: ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`);
  console.log(
    `Random weights, seed ${info.seed}: for performance and integration tests, not for image search.`,
  );
}
