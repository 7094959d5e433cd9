import { cp, lstat, mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { preprocessingSha256 } from "../../contract/fingerprint.ts";
import { tensorrtFile } from "../../contract/model-config.ts";
import { tokenizerFile } from "../../contract/model-shapes.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { configurationFile, fp32Kinds, versionFiles } from "../../contract/repository-files.ts";
import {
  daliKinds,
  kindModality,
  kindsOf,
  type ModelKind,
  tritonModelName,
} from "../../contract/triton-models.ts";
import { ensureOptimised } from "../convert/optimise.ts";
import { externalDataOf } from "../files/external-data.ts";
import { projectRepository } from "../files/folders.ts";
import { sizeOf } from "../files/publish-file.ts";
import { modelFile } from "../generate/generate.ts";
import { specOfFile } from "../graph/model-structure.ts";
import { readOnnx } from "../onnx/reader.ts";
import { writeFingerprint } from "./fingerprint.ts";

export interface RepositoryModel {
  readonly spec: ModelSpec;
  /**
   * ONNX file of each tower, to which the repository links. Towers without a file are omitted.
   *
   * @default - all towers, whose files are written to the repository later
   */
  readonly files?: Readonly<Partial<Record<Modality, string>>>;
  /**
   * Optimised file of the image tower with pixel input, written if it is missing.
   *
   * @default - in the repository; without `files`, a link to the file that `model optimise` writes beside the image tower
   */
  readonly u8File?: string;
}

const heading = "Written by 'clipstack model repository'.";

/**
 * Writes the models of specs to a model repository: configurations, version folders and links. Existing model files stay.
 *
 * @returns Names of the written models.
 */
export async function writeModelRepository(
  models: readonly RepositoryModel[],
  folder: string,
): Promise<readonly string[]> {
  const names: string[] = [];
  for (const given of models) {
    const model = { ...given, spec: namedByFiles(given) };
    const { spec, files } = model;
    for (const modelKind of kindsOf(spec)) {
      if (files !== undefined && files[kindModality(modelKind)] === undefined) continue;
      const name = await writeKind(spec, modelKind, folder, heading);
      names.push(name);
      await writeVersion(model, modelKind, folder);
      if (await sizeOf(join(folder, name, "1", "model.onnx"))) {
        const preprocessing = preprocessingSha256(spec, kindModality(modelKind));
        await writeFingerprint(join(folder, name), "1", preprocessing);
      }
    }
  }
  return names;
}

/** Returns the spec with the tensor names of the files, which the configurations must have. */
function namedByFiles({ spec, files = {} }: RepositoryModel): ModelSpec {
  return (["image", "text"] as const).reduce((named, modality) => {
    const file = files[modality];
    return file === undefined ? named : specOfFile(named, modality, readOnnx(file));
  }, spec);
}

/**
 * Writes the models of a spec that decode JPEG files with DALI: configurations and version folders. The pipelines belong into the
 * version folder of the first.
 *
 * @returns Names of the written models.
 */
export async function writeDaliModels(spec: ModelSpec, folder: string): Promise<readonly string[]> {
  const names: string[] = [];
  for (const modelKind of daliKinds) {
    names.push(await writeKind(spec, modelKind, folder, daliHeading));
  }
  return names;
}

const daliHeading = "Written by 'clipstack model pipeline'.";

/** Writes the configuration and the version folder of a model kind. @returns Name of the model. */
async function writeKind(
  spec: ModelSpec,
  modelKind: ModelKind,
  folder: string,
  firstLine: string,
): Promise<string> {
  const name = tritonModelName(spec, modelKind);
  await mkdir(join(folder, name, "1"), { recursive: true });
  const { path, text } = configurationFile(spec, modelKind, firstLine);
  await writeFile(join(folder, path), text);
  return name;
}

/** Writes the content of version 1. */
async function writeVersion(
  { spec, files, u8File }: RepositoryModel,
  modelKind: ModelKind,
  folder: string,
): Promise<void> {
  const [version, forTensorrt] = versionFiles(spec, modelKind);
  if (version === undefined) return;
  const path = join(folder, version.path);
  if (modelKind === "preprocess") {
    await cp(preprocessScript, path);
    return;
  }
  const tower = files?.[kindModality(modelKind)];
  if (modelKind === "u8" && tower !== undefined) {
    const file = await ensureOptimised(spec, tower, u8File ?? path);
    if (file !== path) await link(resolve(file), path);
    return;
  }
  const target = tower === undefined ? version.target : resolve(tower);
  if (target !== undefined) await link(target, path);
  if (tower !== undefined) await linkNeighbours(spec, kindModality(modelKind), tower, path);
  if (forTensorrt !== undefined) {
    // 'model convert' may write it later
    const file = tower === undefined ? undefined : join(dirname(resolve(tower)), tensorrtFile);
    await link(file ?? forTensorrt.target ?? "", join(folder, forTensorrt.path));
  }
}

const preprocessScript = join(projectRepository, versionFiles(defaultModel, "preprocess")[0]!.path);

/**
 * Links the files of towers into a folder, as the embed server reads them: a model repository without Triton's configurations and
 * derived models.
 */
export async function linkTowers(
  models: readonly RepositoryModel[],
  folder: string,
): Promise<void> {
  for (const { spec, files = {} } of models) {
    for (const modality of ["image", "text"] as const) {
      const target = files[modality];
      if (target === undefined) continue;
      const path = modelFile(spec, fp32Kinds[modality], folder);
      await mkdir(dirname(path), { recursive: true });
      await link(resolve(target), path);
      await linkNeighbours(spec, modality, target, path);
    }
  }
}

/** Links the files that lie beside a tower: external data, and the tokenizer of a text tower. */
async function linkNeighbours(
  { towers }: ModelSpec,
  modality: Modality,
  tower: string,
  path: string,
): Promise<void> {
  const tokenizer = modality === "text" && towers.text && tokenizerFile(towers.text.input);
  for (const file of [...externalDataOf(tower), ...(tokenizer ? [tokenizer] : [])]) {
    const target = join(dirname(resolve(tower)), file);
    if ((await sizeOf(target)) === undefined) continue;
    await mkdir(dirname(join(dirname(path), file)), { recursive: true });
    await link(target, join(dirname(path), file));
  }
}

/** Replaces a link; a file stays. */
async function link(target: string, path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (found !== undefined && !found.isSymbolicLink()) return;
  await rm(path, { force: true });
  await symlink(target, path);
}
