import { resolve } from "node:path";
import { type Command, Option } from "commander";
import { requireTower } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { fp32Kinds } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { type ModelInfo, modelInfo } from "../../model-tools/files/model-info.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import {
  architectureOf,
  type ModelProfile,
  modelProfiles,
} from "../../model-tools/generate/architectures.ts";
import { defaultSeed, generateModel, modelFile } from "../../model-tools/generate/generate.ts";
import { textArchitectureOf } from "../../model-tools/generate/text-architectures.ts";
import { startStatusLine } from "../../report/status-line.ts";
import {
  fileText,
  megabytes,
  printResult,
  randomText,
  requireOwnSidecar,
  seedOf,
  standInNotice,
} from "./model-output.ts";
import { modalityOption, modelArgument, namedModel } from "./named-model.ts";

interface GenerateArguments {
  readonly modality: Modality;
  readonly profile: ModelProfile;
  readonly seed: number;
  readonly output?: string;
  readonly force?: true;
  readonly json?: true;
}

/** Registers `clipstack model generate`, which writes a tower with random weights. */
export function registerModelGenerate(model: Command): void {
  model
    .command("generate")
    .description(
      "write a tower of a model as an ONNX file with seeded random weights: same tensors, size and speed, but " +
        "meaningless embeddings; if the architecture is not known, a small stand-in with the same tensors",
    )
    .argument("[model]", modelArgument)
    .addOption(modalityOption().default("image"))
    .addOption(
      new Option("--profile <name>", "full is full size, ViT-B/32 is 351 MB; tiny is for tests")
        .choices(modelProfiles)
        .default("full"),
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
  $ npx clipstack model generate dinov2-small
  $ npx clipstack model generate openclip-vit-b32 --modality text
  $ npx clipstack model generate --seed 7 --force
  $ npx clipstack model generate --profile tiny --output /tmp/tiny.onnx --json`,
    )
    .action(generate);
}

async function generate(name: string | undefined, args: GenerateArguments): Promise<void> {
  const spec = namedModel(name);
  if (args.output === undefined && args.profile === "tiny") {
    throw new UserError(
      "--profile tiny requires --output: the model repository is for the full-size model",
    );
  }
  requireTower(spec, args.modality);
  const inRepository = modelFile(spec, fp32Kinds[args.modality]);
  const file = args.output === undefined ? inRepository : resolve(args.output);
  const path = displayPath(file);

  const before = args.force ? undefined : await modelInfo(file).catch(() => undefined);
  if (before !== undefined) {
    if (!isSame(before, spec, args)) throw new UserError(`${path} exists; --force replaces it`);
    report(args, path, before, "exists");
    return;
  }
  if (!args.force) await requireOwnSidecar(file);

  let counts = "";
  const progress = startStatusLine(process.stderr, () => counts);
  progress.show(`writing ${path} …`);
  try {
    const info = await generateModel({
      spec,
      modality: args.modality,
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

const towerArchitectures = { image: architectureOf, text: textArchitectureOf } as const;

/** Returns whether a file is the result of the same command. Older manifests do not name the model. */
function isSame(
  { model, architecture, seed }: ModelInfo,
  spec: ModelSpec,
  args: GenerateArguments,
): boolean {
  return (
    (model ?? spec.name) === spec.name &&
    architecture === towerArchitectures[args.modality](spec, args.profile).name &&
    seed === args.seed
  );
}

function report(args: GenerateArguments, file: string, info: ModelInfo, action: string): void {
  printResult(args, { file, ...info }, () => {
    const notice = standInNotice(info);
    return [fileText(file, info, action), randomText(info), ...(notice ? [notice] : [])];
  });
}
