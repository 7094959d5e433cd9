import { chmod, copyFile, mkdir, readdir, readFile, rename, rm, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { readModelConfig } from "../../client/triton/model-config.ts";
import type { Loaded } from "../../client/triton/model-control.ts";
import type { TunableKind } from "../../contract/deployed-model-config.ts";
import { type ModelConfig, tensorrtFile } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { nextModelName, tritonModel } from "../../contract/triton-models.ts";
import { namedOutputs, openSession } from "../../inference/session/onnx-session.ts";
import { requireFit } from "../../inference/session/tower-fit.ts";
import { requireHalfProducts } from "../check/half-products.ts";
import { externalDataOf } from "../files/external-data.ts";
import { sidecarPath } from "../files/model-info.ts";
import { isFolder, ownSuffix } from "../files/publish-file.ts";
import { writeFingerprint } from "./fingerprint.ts";
import { VersionReplacement } from "./replace-version.ts";

export interface DeployVersionOptions {
  readonly spec: ModelSpec;
  readonly modelKind: TunableKind;
  /** ONNX file of the new version. */
  readonly file: string;
  /** Model repository that the server has mounted. */
  readonly repository: string;
  /** `http://host:port` of the Triton server, with `--model-control-mode=explicit`. */
  readonly url: string;
  /** Key of the model control API, if it requires one. */
  readonly key?: string;
  /** Maximum time until the new version is served. */
  readonly timeoutSeconds: number;
}

export interface DeployedVersion {
  readonly model: string;
  readonly version: string;
  /** Time until the new version was served. */
  readonly seconds: number;
  /** Versions that are served now, as the version policy of the configuration selects. */
  readonly served: readonly string[];
}

/** Version to add to a model's folder, and the Triton servers that load it. */
export interface AddVersionOptions {
  /** Folder of the model in the repository of every server. Its name is the model's. An environment mounts it as {@link nextModelName} too. */
  readonly folder: string;
  /** ONNX file that fits the model. */
  readonly file: string;
  /** `http://host:port` of each Triton server. */
  readonly servers: readonly string[];
  /** Key of their model control API, if it requires one. */
  readonly key?: string | undefined;
  /** Maximum time until a server serves the version. */
  readonly timeoutSeconds: number;
}

/**
 * Adds a version beside the existing ones and loads it. Its folder stays, for a rollback.
 *
 * @throws {Error} one line, if the file does not fit the model or the version is not served; its folder is then removed, and the
 *   previous version keeps serving
 */
export async function deployVersion(options: DeployVersionOptions): Promise<DeployedVersion> {
  const { spec, modelKind, file, repository, url, key, timeoutSeconds } = options;
  const model = tritonModel(spec, modelKind);
  const folder = join(repository, model.name);
  if (!(await isFolder(folder))) {
    throw new Error(
      `${repository}: must contain ${model.name}; 'clipstack model repository' writes it`,
    );
  }
  await checkFile(file, model);
  return addVersion({ folder, file, servers: [url], key, timeoutSeconds });
}

/**
 * Checks that a file fits a model kind of a model.
 *
 * @throws {InferenceError} if the file cannot be loaded or its tensors are not those of the model
 */
export async function checkVersion(
  spec: ModelSpec,
  modelKind: TunableKind,
  file: string,
): Promise<void> {
  await checkFile(file, tritonModel(spec, modelKind));
}

/**
 * Adds a version to the folder of a model, and makes one Triton server after the other serve it. If a server cannot serve the new
 * version, the version is removed, and all servers serve the previous one again.
 *
 * @throws {Error} one line, with the reason
 */
export async function addVersion(options: AddVersionOptions): Promise<DeployedVersion> {
  const { folder, file, servers, key, timeoutSeconds } = options;
  const model = basename(folder);
  const link = join(dirname(folder), nextModelName(model));
  const before = await versionsIn(folder);
  const version = String(Number(before.at(-1) ?? "0") + 1);
  const restore = async () => {
    await rm(join(folder, version), { recursive: true, force: true });
    if (before.length > 0) await writeFingerprint(folder, before.at(-1)!);
  };
  const replacements = servers.map((url) => new VersionReplacement({ url, key, folder, version }));
  const startedAt = performance.now();
  try {
    const config = (await replacements[0]?.servedConfig()) ?? (await defaultConfig(folder));
    await copyVersion(folder, version, file, config.default_model_filename || "model.onnx");
    await writeFingerprint(folder, version);
    await rm(link, { force: true });
    await symlink(model, link);
    for (const [index, replacement] of replacements.entries()) {
      const loaded = await replacement.run(timeoutSeconds, restore);
      if (loaded.kind === "serves") continue;
      await restore();
      for (const earlier of replacements.slice(0, index)) await earlier.reload(timeoutSeconds);
      const reason = reasonOf(loaded, servers[index]!);
      throw new Error(`${model}: version ${version} is not served: ${reason}`);
    }
    const seconds = (performance.now() - startedAt) / 1000;
    const all = await Promise.all(replacements.map((replacement) => replacement.servedVersions()));
    return { model, version, seconds, served: all[0] ?? [] };
  } finally {
    await Promise.all(replacements.map((replacement) => replacement.close()));
    await rm(link, { force: true });
  }
}

/** @throws {InferenceError} if the file cannot be loaded or its tensors are not those of the model */
async function checkFile(
  file: string,
  { inputs, outputs }: ReturnType<typeof tritonModel>,
): Promise<void> {
  const selectOutputs = namedOutputs(outputs.map(({ name }) => name));
  const session = await openSession({ modelPath: file, selectOutputs });
  try {
    requireFit(file, { inputs, output: outputs[0] }, session);
  } finally {
    await session.close();
  }
}

/** Configuration in the repository, for a model that is not loaded. */
async function defaultConfig(folder: string): Promise<Partial<ModelConfig>> {
  const text = await readFile(join(folder, "config.pbtxt"), "utf8").catch(() => undefined);
  return text === undefined ? {} : readModelConfig(text, "config.pbtxt");
}

/** Version folders, in ascending order. */
export async function versionsIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder);
  return names
    .filter((name) => /^[1-9]\d*$/.test(name))
    .sort((one, other) => Number(one) - Number(other));
}

/** Copies a model file to a new version folder, as `fileName`. The folder appears atomically. */
async function copyVersion(
  folder: string,
  version: string,
  file: string,
  fileName: string,
): Promise<void> {
  if (fileName === tensorrtFile) requireHalfProducts(file);
  const staging = join(folder, `.${version}.${ownSuffix()}.part`);
  await mkdir(staging);
  try {
    const target = join(staging, fileName);
    for (const [source, copy] of [
      [file, target],
      ...externalDataOf(file).map((name) => [join(dirname(file), name), join(staging, name)]),
    ] as const) {
      await mkdir(dirname(copy!), { recursive: true });
      await copyFile(source!, copy!);
      // the server may run as another user
      await chmod(copy!, 0o644);
    }
    // manifest of the weights, if there is one
    await copyFile(sidecarPath(file), sidecarPath(target)).catch(() => undefined);
    await rename(staging, join(folder, version));
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

function reasonOf(loaded: Exclude<Loaded, { kind: "serves" }>, url: string): string {
  switch (loaded.kind) {
    case "absent":
      return `the host of ${url} is unknown`;
    case "not-listening":
      return `${url} does not respond`;
    case "no-control":
      return `${url} must run with --model-control-mode=explicit`;
    case "other-key":
      return `${url} requires another key`;
    case "failed":
      return loaded.reason;
  }
}
