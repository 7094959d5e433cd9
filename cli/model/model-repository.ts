import { resolve } from "node:path";
import type { Command } from "commander";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { modelArgument, namedModel } from "./named-model.ts";

interface RepositoryArguments {
  readonly folder: string;
  readonly json?: true;
}

/** Registers `clipstack model repository`, which writes Triton's model repository for a list of models. */
export function registerModelRepository(model: Command): void {
  model
    .command("repository")
    .description(
      "write Triton's model repository of models: configurations, version folders and links, without weights; existing model files stay",
    )
    .argument("[models...]", modelArgument)
    .requiredOption("--folder <folder>", "required: model repository, created if it is missing")
    .option("--json", "print the result as JSON")
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack model repository openclip-vit-b32 dinov2-small --folder ../models
  $ npx clipstack model generate dinov2-small --output ../models/dinov2_small/1/model.onnx`,
    )
    .action(writeRepository);
}

async function writeRepository(names: readonly string[], args: RepositoryArguments): Promise<void> {
  const specs = names.length === 0 ? [namedModel()] : names.map((name) => namedModel(name));
  const folder = resolve(args.folder);
  const path = displayPath(folder);
  const models = await writeModelRepository(
    specs.map((spec) => ({ spec })),
    folder,
  ).catch((error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error;
    throw new UserError(`--folder ${path} cannot be written: ${error.code}`, { cause: error });
  });
  if (args.json) console.log(JSON.stringify({ folder: path, models }, null, 2));
  else console.log(`wrote ${models.length} models to ${path}: ${models.join(", ")}`);
}
