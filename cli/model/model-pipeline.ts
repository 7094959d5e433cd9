import { resolve } from "node:path";
import type { Command } from "commander";
import type { Interrupt } from "../../artefact/interrupt.ts";
import { projectRepository } from "../../model-tools/files/folders.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { writeDaliPipeline } from "../../model-tools/repository/dali-pipeline.ts";
import { interruptible } from "../shared/interruptible.ts";
import { printResult } from "./model-output.ts";
import { modelArgument, namedModel } from "./named-model.ts";

interface PipelineArguments {
  readonly folder?: string;
  readonly python?: string;
  readonly json?: true;
}

/** Registers `clipstack model pipeline`, which writes the models that decode JPEG files with DALI. */
export function registerModelPipeline(model: Command): void {
  model
    .command("pipeline")
    .description(
      "write the models with which Triton decodes JPEG files on the GPU: the preprocessing of a model as a DALI pipeline, for GPUs and for CPUs, and its ensembles with the model",
    )
    .argument("[model]", modelArgument)
    .option("--folder <folder>", "model repository; default: model_repository of this checkout")
    .option(
      "--python <program>",
      "Python interpreter with the packages; default: they are installed once",
    )
    .option("--json", "print the result as JSON")
    .addHelpText(
      "after",
      `
DALI, locked in model-tools/python/dali, is installed into $XDG_CACHE_HOME/clipstack or ~/.cache/clipstack (Linux; 1.1 GB on disk).
No GPU is required. Triton needs the DALI backend, which NVIDIA's images have. docs/dali.md lists how the results differ from the exact
preprocessing. Decoding on the GPU is not always faster: measure it with \`clipstack bench\`.

Examples:
  $ npx clipstack model pipeline
  $ npx clipstack model pipeline dinov2-small --folder ../models
  $ npx clipstack model pipeline --python .venv/bin/python --json`,
    )
    .action(async (name: string | undefined, args: PipelineArguments) => {
      await interruptible("the pipeline was stopped", (interrupt) =>
        writePipeline(name, args, interrupt),
      );
    });
}

async function writePipeline(
  name: string | undefined,
  args: PipelineArguments,
  { signal }: Interrupt,
): Promise<void> {
  const spec = namedModel(name);
  const folder = args.folder === undefined ? projectRepository : resolve(args.folder);
  const onProgress = (line: string) => console.error(line);
  const options = { python: args.python, onProgress, signal };
  const { models, files, dali } = await writeDaliPipeline(spec, folder, options);
  printResult(args, { folder: displayPath(folder), models, files, dali }, () => [
    ...files.map(({ path, sha256 }) => `${path} written: sha256 ${sha256}`),
    `Serialized with DALI ${dali}. Models in Triton: ${models.join(", ")}.`,
  ]);
}
