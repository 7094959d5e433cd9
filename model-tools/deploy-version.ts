import { chmod, copyFile, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readModelConfig } from "../client/triton/model-config.ts";
import { type Loaded, ModelControl } from "../client/triton/model-control.ts";
import type { TunableKind } from "../contract/deployed-model-config.ts";
import { type ModelConfig, tensorrtFile, type VersionPolicy } from "../contract/model-config.ts";
import type { ModelSpec } from "../contract/model-spec.ts";
import { tritonModel } from "../contract/triton-models.ts";
import { namedOutputs, openSession } from "../inference/session/onnx-session.ts";
import { requireFit } from "../inference/session/tower-fit.ts";
import { externalDataOf } from "./external-data.ts";
import { writeFingerprint } from "./fingerprint.ts";
import { requireHalfProducts } from "./half-products.ts";
import { sidecarPath } from "./model-info.ts";
import { isFolder, ownSuffix } from "./publish-file.ts";

export interface DeployVersionOptions {
  readonly spec: ModelSpec;
  readonly modelKind: TunableKind;
  /** ONNX file of the new version. */
  readonly file: string;
  /** Model repository that the server has mounted. */
  readonly repository: string;
  /** `http://host:port` of the Triton, with `--model-control-mode=explicit`. */
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

/** Maximum time until the previous version is unloaded, in seconds. Its accepted requests are finished first. */
const unloadSeconds = 60;
const pollMs = 200;

/** Maximum time until a server listens, in seconds: it serves the previous version, so it is not starting. */
const listenSeconds = 5;

/** Version to add to a model's folder, and the Tritons that load it. */
export interface AddVersionOptions {
  /** Folder of the model in the repository of every server. Its name is the model's. */
  readonly folder: string;
  /** ONNX file that fits the model. */
  readonly file: string;
  /** `http://host:port` of each Triton. */
  readonly servers: readonly string[];
  /** Key of their model control API, if it requires one. */
  readonly key?: string | undefined;
  /** Maximum time until a server serves the version. */
  readonly timeoutSeconds: number;
}

/**
 * Adds a version beside the existing ones and loads it. Triton serves the previous version until the new one is ready, then finishes
 * its requests and unloads it, unless the version policy keeps it. Its folder stays, for a rollback.
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
 * Adds a version beside the existing ones, and loads it in one server after the other. If one of them does not serve it, the version is
 * removed, and all serve the previous one.
 *
 * @throws {Error} one line, with the reason
 */
export async function addVersion(options: AddVersionOptions): Promise<DeployedVersion> {
  const { folder, file, servers, key, timeoutSeconds } = options;
  const model = basename(folder);
  const before = await versionsIn(folder);
  const version = String(Number(before.at(-1) ?? "0") + 1);
  const controls = servers.map((url) => ({ url, control: new ModelControl(url, model, key) }));
  const startedAt = performance.now();
  try {
    const config =
      (await controls[0]?.control.servedConfig(listenSeconds)) ?? (await defaultConfig(folder));
    await copyVersion(folder, version, file, config.default_model_filename || "model.onnx");
    await writeFingerprint(folder, version);
    let policy: VersionPolicy = {};
    for (const [index, { url, control }] of controls.entries()) {
      const loaded = await control.load({
        timeoutSeconds,
        listenSeconds,
        version,
        differenceOf: (config) => {
          policy = (config as Pick<ModelConfig, "version_policy">).version_policy ?? {};
          return undefined;
        },
      });
      if (loaded.kind === "serves") continue;
      await rm(join(folder, version), { recursive: true, force: true });
      if (before.length > 0) await writeFingerprint(folder, before.at(-1)!);
      for (const earlier of controls.slice(0, index))
        await earlier.control.load({ timeoutSeconds, listenSeconds });
      throw new Error(`${model}: version ${version} is not served: ${reasonOf(loaded, url)}`);
    }
    const seconds = (performance.now() - startedAt) / 1000;
    const all = await Promise.all(controls.map(({ control }) => settled(control, policy)));
    return { model, version, seconds, served: all[0] ?? [] };
  } finally {
    await Promise.all(controls.map(({ control }) => control.close()));
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
async function versionsIn(folder: string): Promise<readonly string[]> {
  const names = await readdir(folder);
  return names
    .filter((name) => /^[1-9]\d*$/.test(name))
    .sort((one, other) => Number(one) - Number(other));
}

/** Copies the file to a new version folder, which appears at once, under the name in the configuration. */
async function copyVersion(
  folder: string,
  version: string,
  file: string,
  name: string,
): Promise<void> {
  if (name === tensorrtFile) requireHalfProducts(file);
  const staging = join(folder, `.${version}.${ownSuffix()}.part`);
  await mkdir(staging);
  try {
    const target = join(staging, name);
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

/** Returns the served versions, once only the new one is served if the policy keeps no other: Triton unloads in the background. */
async function settled(
  control: ModelControl,
  { latest, all, specific }: VersionPolicy,
): Promise<readonly string[]> {
  const keepsOthers =
    all !== undefined || specific !== undefined || (latest?.num_versions ?? 1) > 1;
  const deadline = performance.now() + unloadSeconds * 1000;
  for (;;) {
    const served = await control.servedVersions(unloadSeconds);
    if (keepsOthers || served.length === 1 || performance.now() > deadline) return served;
    await sleep(pollMs);
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
