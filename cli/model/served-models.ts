import { rmSync } from "node:fs";
import { mkdtemp, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { requireTower } from "../../contract/model-shapes.ts";
import { type Modality, type ModelSpec, withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { readSidecar } from "../../model-tools/files/model-info.ts";
import { preparedPath } from "../../model-tools/files/prepared-file.ts";
import {
  ensureGeneratedModel,
  ensureTinyModel,
  modelFile,
} from "../../model-tools/generate/generate.ts";
import {
  linkTowers,
  type RepositoryModel,
  writeModelRepository,
} from "../../model-tools/repository/repository.ts";
import { tokenizerProblem } from "./model-option.ts";
import { standInNotice } from "./model-output.ts";
import { namedModel } from "./named-model.ts";

/** Model of `clipstack serve`, with its files. */
interface ServedFiles {
  readonly spec: ModelSpec;
  /** ONNX file of the image tower, if the model has one. */
  readonly image?: string | undefined;
  /** ONNX file of the text tower, if there is one. */
  readonly text?: string | undefined;
  /** Whether the file of the image tower may be optimised in place. */
  readonly isOwn: boolean;
}

/**
 * Returns the settings of the embed server for the values of `--model`: a temporary repository with links to the files. The image
 * towers of the checkout are optimised first, unless MODEL_PRECISION is set.
 */
export async function embedSettings(
  values: readonly string[],
): Promise<Partial<Record<ServerEnvName, string>>> {
  const models = await filesOf(values);
  return {
    ...modelSettings(
      models.map(({ spec, image, text }) =>
        withModalities(spec, [
          ...(image === undefined ? [] : (["image"] as const)),
          ...(text === undefined ? [] : (["text"] as const)),
        ]),
      ),
    ),
    MODEL_REPOSITORY: await linkedRepository(models.map(repositoryModel)),
    ...(process.env.MODEL_PRECISION || !(await areOptimised(models))
      ? {}
      : { MODEL_PRECISION: "fp32-optimised" }),
  };
}

/** Returns the settings of a gateway for the values of `--model`: models or towers of models. Without any, those of the environment. */
export function gatewaySettings(values: readonly string[]): Partial<Record<ServerEnvName, string>> {
  if (values.length === 0) return {};
  return modelSettings(
    values.map((value) => {
      const [name, modality] = towerIn(value) ?? [value];
      const spec = namedModel(name);
      if (modality === undefined) return spec;
      requireTower(spec, modality);
      return withModalities(spec, [modality]);
    }),
  );
}

/**
 * Returns the model repository of the Triton emulator for the values of `--model`: a folder, otherwise a temporary one with links to
 * the files. The checkout's is not served, because it may contain towers without configurations.
 */
export async function tritonRepository(values: readonly string[]): Promise<string> {
  const [first] = values;
  const folder = values.length === 1 ? await stat(first!).catch(() => undefined) : undefined;
  if (folder?.isDirectory()) return resolve(first!);
  const models = await filesOf(values);
  const repository = await temporaryFolder();
  await writeModelRepository(models.map(repositoryModel), repository);
  return repository;
}

function repositoryModel({ spec, image, text, isOwn }: ServedFiles): RepositoryModel {
  const files = { ...(image !== undefined && { image }), ...(text !== undefined && { text }) };
  if (image === undefined || !isOwn) return { spec, files };
  return { spec, files, u8File: preparedPath(image, "fp32-optimised") };
}

async function filesOf(values: readonly string[]): Promise<readonly ServedFiles[]> {
  const models: ServedFiles[] = [];
  for (const value of values) {
    const model = await filesOfValue(value);
    const { name } = model.spec;
    if (models.some(({ spec }) => spec.name === name)) {
      throw new UserError(`--model must not repeat a model, got ${name} twice`);
    }
    models.push(model);
    await printStandIn(model);
  }
  return models;
}

/** Prints once per model that a file is a stand-in. */
async function printStandIn({ image, text }: ServedFiles): Promise<void> {
  const notices = new Set<string>();
  for (const file of [image, text]) {
    const info = file === undefined ? undefined : await readSidecar(file);
    const notice = info && standInNotice(info);
    if (notice !== undefined) notices.add(notice);
  }
  for (const notice of notices) console.error(notice);
}

async function filesOfValue(value: string): Promise<ServedFiles> {
  if (value === "tiny") return await tinyFiles(defaultModel);
  if (value === "generated") return await checkoutFiles(defaultModel, "image");
  const [, name, path] = /^([a-z0-9-]+)=(.+)$/.exec(value) ?? [];
  if (name !== undefined && path !== undefined) {
    return { spec: namedModel(name), image: await existingFile(value, path), isOwn: false };
  }
  const [entry, modality] = towerIn(value) ?? [];
  if (entry !== undefined && !(await isFile(value))) {
    return await checkoutFiles(namedModel(entry), modality);
  }
  return { spec: defaultModel, image: await existingFile(value, value), isOwn: false };
}

/** Model and tower of `<model>` or `<model>:<modality>`; undefined for any other value. */
function towerIn(value: string): readonly [string, Modality?] | undefined {
  const [, name, modality] = /^([a-z0-9-]+)(?::(image|text))?$/.exec(value) ?? [];
  return name === undefined ? undefined : [name, modality as Modality | undefined];
}

async function tinyFiles(spec: ModelSpec): Promise<ServedFiles> {
  const { image, text } = spec.towers;
  return {
    spec,
    image: image && (await ensureTinyModel(spec)),
    text: text && (await ensureTinyModel(spec, "text")),
    isOwn: true,
  };
}

/**
 * Files of a model in the checkout's model repository; missing ones are generated with random weights.
 *
 * @param modality - Tower that is served. All if it is omitted; a model with an image tower is then served without texts if they are
 *   unavailable.
 */
async function checkoutFiles(spec: ModelSpec, modality?: Modality): Promise<ServedFiles> {
  if (modality !== undefined) requireTower(spec, modality);
  let isAnnounced = false;
  const announce = () => {
    if (!isAnnounced) console.error(`generating ${spec.name} with random weights …`);
    isAnnounced = true;
  };
  const { image, text } = withModalities(spec, modality ? [modality] : ["image", "text"]).towers;
  const imageFile = image && (await ensureGeneratedModel(spec, announce));
  const problem = text && (await textProblem(spec));
  if (text !== undefined && problem === undefined) {
    return {
      spec,
      image: imageFile,
      text: await ensureGeneratedModel(spec, announce, "text"),
      isOwn: true,
    };
  }
  if (problem !== undefined && imageFile === undefined) {
    throw new UserError(`${spec.name} cannot embed texts: ${problem}`);
  }
  if (problem !== undefined) console.error(`${spec.name} is served without texts: ${problem}`);
  return { spec, image: imageFile, isOwn: true };
}

/**
 * Returns why a model of the checkout cannot embed texts; undefined if it can. No text tower is generated beside an image tower with
 * trained weights, because their embeddings could not be compared.
 */
async function textProblem(spec: ModelSpec): Promise<string | undefined> {
  const file = modelFile(spec, "text");
  const missing = await tokenizerProblem(spec, dirname(file));
  if (missing !== undefined) return missing;
  if (await isFile(file)) return undefined;
  const weights = (await readSidecar(modelFile(spec)))?.weights;
  const isTrained = (await isFile(modelFile(spec))) && weights !== "random";
  return isTrained
    ? "its text tower is missing, and its image tower has trained weights: see 'clipstack model pull' and 'clipstack model export'"
    : undefined;
}

async function existingFile(value: string, path: string): Promise<string> {
  if (await isFile(path)) return resolve(path);
  throw new UserError(
    `--model must be tiny, generated, the name of a model, or a file that exists, got '${value}'`,
  );
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() ?? false;
}

/** Returns whether the optimised files of all models exist afterwards. */
async function areOptimised(models: readonly ServedFiles[]): Promise<boolean> {
  if (!models.every(({ isOwn }) => isOwn)) return false;
  for (const { spec, image } of models) {
    if (image === undefined) continue;
    try {
      await ensureOptimised(spec, image);
    } catch (error) {
      console.error(`serving ${image} without optimising it: ${(error as Error).message}`);
      return false;
    }
  }
  return true;
}

/** Returns a temporary folder with links to the files of models, for the setting MODEL_REPOSITORY. It is removed at the exit. */
export async function linkedRepository(models: readonly RepositoryModel[]): Promise<string> {
  const repository = await temporaryFolder();
  await linkTowers(models, repository);
  return repository;
}

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-models-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
