import { dirname, join, resolve } from "node:path";
import { type Command, Option } from "commander";
import { serverEnv } from "../../inference-image/src/contract/server-env.ts";
import { ensureU8Model } from "../../inference-image/src/model/derive.ts";
import {
  defaultSeed,
  type GenerateOptions,
  generateModel,
  repositoryModel,
} from "../../inference-image/src/model/generate.ts";
import { type ModelInfo, modelInfo } from "../../inference-image/src/model/model-info.ts";
import { preparedFolder, prepareInto } from "../../inference-image/src/model/prepare.ts";
import { repositoryU8Model } from "../../inference-image/src/model/repository.ts";
import { profiles } from "../../inference-image/src/model/vision-transformer.ts";
import { registerModelCheck } from "./model-check.ts";
import { registerModelConvert } from "./model-convert.ts";
import { registerModelExport } from "./model-export.ts";
import {
  deriveOfRepository,
  megabytes,
  ofFiles,
  reportDerived,
  requireOwnSidecar,
  seedOf,
  shownCosine,
  shownPath,
} from "./model-output.ts";
import { registerModelPull } from "./model-pull.ts";
import { UserError } from "./user-error.ts";

interface GenerateArguments {
  readonly profile: GenerateOptions["profile"];
  readonly seed: number;
  readonly output?: string;
  readonly force?: true;
  readonly json?: true;
}

interface DeriveArguments {
  readonly model?: string;
  readonly output?: string;
  readonly json?: true;
}

interface PrepareArguments extends DeriveArguments {
  readonly precision: "fp32" | "int8";
}

/** `clipstack model …`: the file that the servers load. */
export function registerModel(program: Command): void {
  const model = program.command("model");
  registerModelPull(model);
  registerModelCheck(model);
  registerModelExport(model);
  registerModelConvert(model);

  model
    .command("generate")
    .description(
      "write the ViT-B/32 image tower as an ONNX file with seeded random weights: its size, speed and signature are " +
        "those of OpenCLIP's, its embeddings mean nothing",
    )
    .addOption(
      new Option("--profile <name>", "vit-b-32 is full size, 351 MB; tiny is under 1 MB, for tests")
        .choices(Object.keys(profiles))
        .default("vit-b-32"),
    )
    .option("--seed <integer>", "the same seed gives the same bytes", seedOf, defaultSeed)
    .option("--output <file>", "default: the model repository of this checkout")
    .option("--force", "replace a file that is there")
    .option("--json", "print what was written as JSON")
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack model generate
  $ npx clipstack model generate --seed 7 --force
  $ npx clipstack model generate --profile tiny --output /tmp/tiny.onnx --json`,
    )
    .action(generate);

  model
    .command("derive")
    .description(
      "write the model whose input is 8-bit pixels (openclip_vit_b32_u8) from the standard file: same weights, the " +
        "normalisation inside the graph",
    )
    .option("--model <file>", "default: the standard file of the model repository of this checkout")
    .option("--output <file>", "default: the model repository of this checkout")
    .option("--json", "print what was written as JSON")
    .addHelpText(
      "after",
      `
A file that something else wrote is left alone. \`model generate\` does this for the weights that it writes.

Examples:
  $ npx clipstack model derive
  $ npx clipstack model derive --model weights/vit-b-32.onnx --output /tmp/u8.onnx --json`,
    )
    .action(derive);

  model
    .command("prepare")
    .description(
      "make the form of a model that the embed server runs, for a container whose folders are read-only; elsewhere the " +
        "server makes it at its first start",
    )
    .option("--model <file>", "default: the standard file of the model repository of this checkout")
    .addOption(
      new Option("--precision <precision>", "as MODEL_PRECISION of the server")
        .choices(serverEnv.shape.MODEL_PRECISION.unwrap().options)
        .default("fp32"),
    )
    .option("--output <folder>", `default: ${preparedFolder}/ beside the model file`)
    .option("--json", "print what was made as JSON")
    .addHelpText(
      "after",
      `
The server looks into ${preparedFolder}/ beside MODEL_PATH, and into MODEL_CACHE_DIR.

Examples:
  $ npx clipstack model prepare
  $ npx clipstack model prepare --precision int8 --json`,
    )
    .action(prepare);
}

async function derive(args: DeriveArguments): Promise<void> {
  const model = args.model === undefined ? repositoryModel : resolve(args.model);
  const file = args.output === undefined ? repositoryU8Model : resolve(args.output);
  if (file === model) throw new UserError(`--output must not be the model itself, got '${file}'`);
  const info = await ofFiles(ensureU8Model(model, file));
  if (args.json) console.log(JSON.stringify({ file: shownPath(file), ...info }, null, 2));
  else if (info.source === "derived") reportDerived(file, info);
  else console.log(`${shownPath(file)} is somebody else's: left alone`);
}

async function prepare(args: PrepareArguments): Promise<void> {
  const model = args.model === undefined ? repositoryModel : resolve(args.model);
  const folder = resolve(args.output ?? join(dirname(model), preparedFolder));
  const { modelPath, facts } = await ofFiles(
    prepareInto(folder, { modelPath: model, precision: args.precision }),
  );
  if (args.json) {
    console.log(JSON.stringify({ model: shownPath(modelPath), ...facts }, null, 2));
    return;
  }
  const { minCosine, meanCosine, images } = facts.agreement;
  console.log(`${shownPath(modelPath)}: ${facts.precision}, ${facts.parts.join(", ")}`);
  console.log(
    `Cosine to the original on ${images} synthetic images: ${shownCosine(minCosine)} least, ${shownCosine(meanCosine)} mean.`,
  );
}

async function generate(args: GenerateArguments): Promise<void> {
  if (args.output === undefined && args.profile === "tiny") {
    throw new UserError(
      "--output must be given with --profile tiny: the model repository is for the full-size model",
    );
  }
  const file = args.output === undefined ? repositoryModel : resolve(args.output);
  const shown = shownPath(file);

  const before = args.force ? undefined : await modelInfo(file).catch(() => undefined);
  if (before !== undefined) {
    const same = before.architecture === args.profile && before.seed === args.seed;
    if (!same) throw new UserError(`${shown} is there already; --force replaces it`);
    report(args, shown, before, "is there already");
    await deriveOfRepository(args, file);
    return;
  }
  if (!args.force) await requireOwnSidecar(file);

  const progress = startProgress(shown);
  try {
    const info = await generateModel({
      profile: args.profile,
      seed: args.seed,
      file,
      onProgress: progress.tell,
    });
    progress.end();
    report(args, shown, info, "written");
  } catch (error) {
    progress.end();
    const code = (error as NodeJS.ErrnoException).code;
    if (code === undefined) throw error;
    throw new UserError(`--output ${shown} cannot be written: ${code}`, { cause: error });
  }
  await deriveOfRepository(args, file);
}

function report(args: GenerateArguments, file: string, info: ModelInfo, what: string): void {
  if (args.json) {
    console.log(JSON.stringify({ file, ...info }, null, 2));
    return;
  }
  console.log(`${file} ${what}: ${megabytes(info.bytes)} MB, sha256 ${info.sha256}`);
  console.log(`Random weights, seed ${info.seed}: for speed and plumbing, not for finding photos.`);
}

/** One line that is rewritten on a terminal, one line in all elsewhere; on stderr, so that stdout is the result. */
function startProgress(file: string): {
  readonly tell: NonNullable<GenerateOptions["onProgress"]>;
  readonly end: () => void;
} {
  if (!process.stderr.isTTY) {
    console.error(`writing ${file} …`);
    return { tell: () => {}, end: () => {} };
  }
  return {
    tell: ({ bytes, total }) => {
      const percent = String(Math.floor((100 * bytes) / total)).padStart(3);
      process.stderr.write(
        `\r\x1b[Kwriting ${file} ${percent} %  ${megabytes(bytes)} of ${megabytes(total)} MB`,
      );
    },
    end: () => process.stderr.write("\r\x1b[K"),
  };
}
