import { copyFile, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { z } from "zod";
import { daliFiles } from "../../contract/model-config.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { daliPipelinePath } from "../../contract/repository-files.ts";
import { UserError } from "../../contract/user-error.ts";
import { sha256Of } from "../files/model-info.ts";
import { displayPath } from "../files/user-errors.ts";
import { daliPackages, ensurePython, runPython } from "../python/python-environment.ts";
import { writeDaliModels } from "./repository.ts";

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

export interface PipelineOptions {
  /** @default - a Python with DALI, installed once */
  readonly python?: string;
  readonly onProgress: (line: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Serializes the pipelines for GPUs and CPUs and writes the configurations into a model repository. Existing files are kept until the new
 * ones are complete.
 */
export async function writeDaliPipeline(
  spec: ModelSpec,
  folder: string,
  { python: given, onProgress, signal }: PipelineOptions,
) {
  requirePipeline(spec);
  const python = given ?? (await ensurePython(daliPackages, { onProgress, signal }));
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
