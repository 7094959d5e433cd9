import { copyFile, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { Command } from "commander";
import { z } from "zod";
import type { Interrupt } from "../../artefact/interrupt.ts";
import { daliFiles } from "../../contract/model-config.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { daliPipelinePath } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { sha256Of } from "../../model-tools/files/model-info.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { checkoutRepository } from "../../model-tools/generate/generate.ts";
import {
  daliPackages,
  ensurePython,
  runPython,
} from "../../model-tools/python/python-environment.ts";
import { writeDaliModels } from "../../model-tools/repository/repository.ts";
import { interruptible } from "./interruptible.ts";
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
      await interruptible("pipeline", (interrupt) => writePipeline(name, args, interrupt));
    });
}

async function writePipeline(
  name: string | undefined,
  args: PipelineArguments,
  { signal }: Interrupt,
): Promise<void> {
  const spec = namedModel(name);
  requirePipeline(spec);
  const folder = args.folder === undefined ? checkoutRepository : resolve(args.folder);
  const onProgress = (line: string) => console.error(line);
  const python = args.python ?? (await ensurePython(daliPackages, { onProgress, signal }));
  const { models, files, dali } = await serialize(spec, folder, python, signal);
  if (args.json) {
    console.log(JSON.stringify({ folder: displayPath(folder), models, files, dali }, null, 2));
    return;
  }
  for (const { path, sha256 } of files) console.log(`${path} written: sha256 ${sha256}`);
  console.log(`Serialized with DALI ${dali}. Models in Triton: ${models.join(", ")}.`);
}

/** @throws {UserError} if DALI cannot preprocess for the model */
function requirePipeline(spec: ModelSpec): void {
  const { size, resize } = imageTowerOf(spec).input;
  const longest = Math.max(size.width, size.height);
  if (resize.mode === "shortest-edge" && resize.edge < longest) {
    throw new UserError(
      `${spec.name}: resize.edge must be at least the input size (${longest}) for DALI, got ${resize.edge}`,
    );
  }
}

const serialized = z.object({ dali: z.string() });

/** Serializes both pipelines and writes the configurations. Existing files are kept until the new ones are complete. */
async function serialize(spec: ModelSpec, folder: string, python: string, signal: AbortSignal) {
  const scratch = await mkdtemp(join(tmpdir(), "clipstack-pipeline-"));
  try {
    const specFile = join(scratch, "spec.json");
    await writeFile(specFile, JSON.stringify(spec));
    const output = await runPython(python, "dali/pipeline.py", [specFile, scratch], signal);
    const { dali } = serialized.parse(JSON.parse(output));
    const models = await writeDaliModels(spec, folder);
    const files = [];
    for (const device of ["gpu", "cpu"] as const) {
      const path = join(folder, daliPipelinePath(spec, device));
      files.push(await publish(join(scratch, daliFiles[device]), path));
    }
    return { models, files, dali };
  } catch (error) {
    const { code, path = "" } = error as NodeJS.ErrnoException;
    if (code === undefined || error instanceof UserError) throw error;
    throw new UserError(`--folder ${displayPath(path)} cannot be written: ${code}`, {
      cause: error,
    });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Moves a file into the repository, which may be on another file system. */
async function publish(source: string, path: string) {
  const part = `${path}.part`;
  await mkdir(dirname(path), { recursive: true });
  await copyFile(source, part);
  await rename(part, path);
  return { path: displayPath(path), sha256: await sha256Of(path) };
}
