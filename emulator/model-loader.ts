import { existsSync } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { type ModelConfigJson, readModelConfig } from "../client/triton/model-config.ts";
import { executionInstances, tensorrtFile } from "../contract/model-config.ts";
import {
  maxImagePixelsParameter,
  parseDaliParameters,
  parsePreprocessParameters,
} from "../contract/preprocess-parameters.ts";
import { namedOutputs, openSession } from "../inference/session/onnx-session.ts";
import type { ModelSession } from "../inference/session/types.ts";
import { InferenceError } from "../inference/threads/inference-error.ts";
import { isFolder } from "../model-tools/files/publish-file.ts";
import { completeConfig } from "./complete-config.ts";
import { ensembleRunner, type ModelLookup, stepVersion } from "./ensemble-runner.ts";
import { checkModelConfig, checkModelFits } from "./model-config-check.ts";
import { onnxRunner } from "./model-runner.ts";
import { invalidArgument, OipError } from "./oip-error.ts";
import {
  daliModel,
  type PreprocessingModel,
  preprocessRunner,
  pythonModel,
} from "./preprocess-runner.ts";
import { ServedModel, type ServedModelProps } from "./served-model.ts";

export interface LoadModelOptions {
  readonly repository: string;
  /** Name of the model's folder. */
  readonly name: string;
  /** `configs/<name>.pbtxt` instead of `config.pbtxt`, if the model has it. */
  readonly configName?: string;
  /** Text of a `config.pbtxt` that overrides the model's own. */
  readonly override?: string;
  /** Whether Triton completes the configuration: without `--disable-auto-complete-config`. */
  readonly completes: boolean;
  /** Looks up the members of an ensemble, which are loaded before it. Throws {@link OipError} for a missing one. */
  readonly modelOf: ModelLookup;
  /** Previously loaded versions, whose counters continue. */
  readonly previous: readonly ServedModel[];
  readonly log: (line: string) => void;
}

type ConfigSource = Pick<
  LoadModelOptions,
  "repository" | "name" | "configName" | "override" | "completes"
>;

/**
 * Loads the versions of one model that its version policy selects.
 *
 * @throws {OipError} with a one-line message if the model cannot be loaded
 */
export async function loadModel(options: LoadModelOptions): Promise<readonly ServedModel[]> {
  const { name, repository, log } = options;
  const folder = join(repository, name);
  const read = await readConfig(options, folder, log);
  const config = await completed({ ...read, name: read.name || name }, folder, options);
  checkModelConfig(config, name, memberConfigs(config, options.modelOf));
  const versions = await versionsToServe(folder, config);
  logDifferences(config, log);

  const models: ServedModel[] = [];
  try {
    for (const version of versions) {
      const path = join(folder, version, fileOf(config, join(folder, version)));
      models.push(await loadVersion(config, version, path, options));
      log(`successfully loaded '${name}' version ${version}`);
    }
  } catch (error) {
    await Promise.all(models.map((model) => model.close()));
    throw error;
  }
  return models;
}

/** Completes a configuration from the latest version. */
async function completed(
  config: ModelConfigJson,
  folder: string,
  { completes }: LoadModelOptions,
): Promise<ModelConfigJson> {
  if (!completes) return config;
  const versions = await versionsToServe(folder, config);
  return await asOipError(config, completeConfig(config, join(folder, versions.at(-1)!)));
}

/** Model file of a version. ONNX Runtime executes the FP32 file in place of the one that TensorRT requires for FP16. */
function fileOf({ default_model_filename: file }: ModelConfigJson, folder: string): string {
  return file === tensorrtFile && existsSync(join(folder, "model.onnx")) ? "model.onnx" : file;
}

function memberConfigs(config: ModelConfigJson, modelOf: ModelLookup): readonly ModelConfigJson[] {
  return (config.ensemble_scheduling?.step ?? []).flatMap((step) => {
    try {
      return [modelOf(step.model_name, stepVersion(step)).config];
    } catch {
      return [];
    }
  });
}

/**
 * Names of the members of an ensemble; none for another model, or if the configuration is invalid, which the load reports.
 */
export async function ensembleMembers(options: ConfigSource): Promise<readonly string[]> {
  const folder = join(options.repository, options.name);
  const config = await readConfig(options, folder, () => {}).catch(() => undefined);
  return config?.ensemble_scheduling?.step.map((step) => step.model_name) ?? [];
}

/** Latest modification time in a model's folder, in nanoseconds. */
export async function modifiedAt({
  repository,
  name,
}: Pick<ConfigSource, "repository" | "name">): Promise<bigint> {
  const folder = join(repository, name);
  const paths = await readdir(folder, { recursive: true }).catch(() => []);
  const times = await Promise.all(
    ["", ...paths].map(async (path) => {
      const found = await stat(join(folder, path), { bigint: true }).catch(() => undefined);
      return found?.mtimeNs ?? 0n;
    }),
  );
  return times.reduce((latest, time) => (time > latest ? time : latest), 0n);
}

/** Names of the folders of a repository that can hold a model. */
export async function modelFolders(repository: string): Promise<readonly string[]> {
  const entries = await readdir(repository).catch((error: Error) => {
    throw invalidArgument(`failed to open the model repository: ${error.message}`, error);
  });
  const names = entries.filter((name) => !name.startsWith(".")).sort();
  const areFolders = await Promise.all(names.map((name) => isFolder(join(repository, name))));
  return names.filter((_, index) => areFolders[index]);
}

async function readConfig(
  { configName, override, completes }: ConfigSource,
  folder: string,
  log: (line: string) => void,
): Promise<ModelConfigJson> {
  if (override !== undefined) return parseConfig(override, "config override");
  const { file, custom } = await configFileOf(folder, configName);
  // a model without `configs/` has one configuration
  if (configName !== undefined && !custom && (await isFolder(join(folder, "configs")))) {
    log(`${namedConfigFile(folder, configName)}: no such file, using ${file}`);
  }
  const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (completes && error.code === "ENOENT") return "";
    const reason = error.code === "ENOENT" ? "No such file or directory" : error.message;
    throw invalidArgument(`failed to open text file for read ${file}: ${reason}`, error);
  });
  return parseConfig(text, file);
}

/** Path of `configs/<name>.pbtxt` if it exists, otherwise of `config.pbtxt`. */
async function configFileOf(
  folder: string,
  configName: string | undefined,
): Promise<{ readonly file: string; readonly custom: boolean }> {
  const custom = configName === undefined ? undefined : namedConfigFile(folder, configName);
  return custom !== undefined && (await isFile(custom))
    ? { file: custom, custom: true }
    : { file: join(folder, "config.pbtxt"), custom: false };
}

function namedConfigFile(folder: string, configName: string): string {
  return join(folder, "configs", `${configName}.pbtxt`);
}

function parseConfig(text: string, file: string): ModelConfigJson {
  try {
    return readModelConfig(text, file);
  } catch (error) {
    throw invalidArgument((error as Error).message, error);
  }
}

/** Logs in one line how execution differs from a Triton server with GPUs. */
function logDifferences(config: ModelConfigJson, log: (line: string) => void): void {
  const { instance_group: groups, optimization } = config;
  const gpus = groups
    .filter(({ kind }) => kind === "KIND_GPU")
    .flatMap((group) => group.gpus ?? []);
  const instances = groups.length === 0 ? 1 : executionInstances(config, 1);
  const accelerators = optimization?.execution_accelerators;
  const names = [
    ...(accelerators?.gpu_execution_accelerator ?? []),
    ...(accelerators?.cpu_execution_accelerator ?? []),
  ].map(({ name }) => name);

  const differences: string[] = [];
  if (groups.some(({ kind }) => kind === "KIND_GPU")) {
    differences.push(gpus.length > 0 ? `KIND_GPU on GPU ${gpus.join(", ")}` : "KIND_GPU");
  }
  if (names.length > 0) differences.push(`execution accelerator ${names.join(", ")}`);
  if (config.backend === "dali") differences.push("DALI");
  // preprocessing shares its threads, whatever the number of instances
  if (instances > 1 && config.backend !== "python" && config.backend !== "dali")
    differences.push(`${instances} instances`);
  if (config.model_warmup.length > 0) differences.push("warm-up");
  if (differences.length === 0) return;
  log(
    `'${config.name}' is configured with ${differences.join("; ")}: this server runs it on the CPU, in one session, without warm-up`,
  );
}

async function versionsToServe(folder: string, config: ModelConfigJson): Promise<string[]> {
  const entries = await readdir(folder).catch(() => []);
  const found = entries
    .filter((entry) => /^[1-9]\d*$/.test(entry))
    .sort((a, b) => Number(a) - Number(b));
  const { latest, specific } = config.version_policy ?? {};
  const versions =
    specific !== undefined
      ? found.filter((version) => specific.versions.includes(Number(version)))
      : latest !== undefined
        ? found.slice(-Math.max(1, latest.num_versions))
        : found;
  if (versions.length > 0) return versions;
  throw invalidArgument(
    `at least one version must be available under the version policy of model '${config.name}'`,
  );
}

async function loadVersion(
  config: ModelConfigJson,
  version: string,
  path: string,
  options: LoadModelOptions,
): Promise<ServedModel> {
  const started = await startModel(config, version, path, options);
  const counters = options.previous.find((model) => model.version === version)?.counters;
  return new ServedModel({ config, version, counters, ...started });
}

/** Runner and liveness of a model, by backend. */
type StartedModel = Pick<ServedModelProps, "start" | "isAlive">;

async function startModel(
  config: ModelConfigJson,
  version: string,
  path: string,
  { modelOf, log }: LoadModelOptions,
): Promise<StartedModel> {
  if (config.ensemble_scheduling !== undefined) return startEnsemble(config, modelOf);
  if (config.backend === "python" || config.backend === "dali") {
    return await startPreprocessing(config, config.backend, path);
  }
  return await startOnnx(config, version, path, log);
}

function startEnsemble(config: ModelConfigJson, modelOf: ModelLookup): StartedModel {
  const steps = config.ensemble_scheduling?.step ?? [];
  return {
    isAlive: () =>
      steps.every((step) => {
        try {
          return modelOf(step.model_name, stepVersion(step)).isAlive();
        } catch {
          return false;
        }
      }),
    start: (events) => ensembleRunner(config, modelOf, events),
  };
}

/** Starts the emulation of a preprocessing model; this server runs neither Python nor DALI. */
async function startPreprocessing(
  config: ModelConfigJson,
  backend: "python" | "dali",
  path: string,
): Promise<StartedModel> {
  const { parameters = {} } = config;
  if (parameters[maxImagePixelsParameter] === undefined) {
    throw invalidArgument(
      `model '${config.name}' has the backend ${backend}, which this server supports for preprocessing only, with its own preprocessing: it must have the parameter ${maxImagePixelsParameter}`,
    );
  }
  if (!(await isFile(path)))
    throw invalidArgument(`failed to load '${config.name}': ${path} does not exist`);
  const model = preprocessingModel(config, backend);
  checkModelFits(config, model);
  return { isAlive: () => true, start: (events) => preprocessRunner(model, events) };
}

/** @throws {OipError} for an invalid parameter */
function preprocessingModel(
  { name, parameters = {} }: ModelConfigJson,
  backend: "python" | "dali",
): PreprocessingModel {
  const invalid = (problem: string) => invalidArgument(`model '${name}': parameter ${problem}`);
  if (backend === "python") {
    const settings = parsePreprocessParameters(parameters);
    if ("problem" in settings) throw invalid(settings.problem);
    return pythonModel(settings);
  }
  const settings = parseDaliParameters(parameters);
  if ("problem" in settings) throw invalid(settings.problem);
  return daliModel(settings);
}

async function startOnnx(
  config: ModelConfigJson,
  version: string,
  path: string,
  log: (line: string) => void,
): Promise<StartedModel> {
  let alive = true;
  const session = await openModel(config, path, (error) => {
    alive = false;
    log(`'${config.name}' version ${version}: the runtime has exited: ${error.problem}`);
  });
  try {
    checkModelFits(config, session);
  } catch (error) {
    await session.close();
    throw error;
  }
  return { isAlive: () => alive, start: (events) => onnxRunner(config, session, events) };
}

async function openModel(
  config: ModelConfigJson,
  modelPath: string,
  onDeath: (error: InferenceError) => void,
): Promise<ModelSession> {
  const selectOutputs = namedOutputs(config.output.map(({ name }) => name));
  const batch = config.max_batch_size > 0 ? "dynamic" : "any";
  return await asOipError(config, openSession({ modelPath, onDeath, selectOutputs, batch }));
}

async function asOipError<T>({ name }: ModelConfigJson, opening: Promise<T>): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    if (!(error instanceof InferenceError)) throw error;
    throw new OipError("internal", `failed to load '${name}': ${error.problem}`, { cause: error });
  }
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() ?? false;
}
