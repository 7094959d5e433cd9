import { createHash } from "node:crypto";
import { open, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { type ModelConfigJson, readModelConfig } from "../../client/triton/model-config.ts";
import { type Loaded, ModelControl } from "../../client/triton/model-control.ts";
import { modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { ownSuffix } from "../../model-tools/files/publish-file.ts";
import { versionsIn } from "../../model-tools/repository/deploy-version.ts";
import {
  type FingerprintedFile,
  withFingerprint,
} from "../../model-tools/repository/fingerprint.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface ApplyConfigOptions {
  /** Folder of the model's named configurations: `configs/` in the model's folder. */
  readonly folder: string;
  readonly file: string;
  /** Name of the configuration: the server's `--model-config-name`. */
  readonly name: string;
  readonly model: string;
  /**
   * ONNX file of version 1, and the SHA-256 of the tower's preprocessing, for the fingerprint.
   *
   * @default - a configuration without fingerprint
   */
  readonly weights?:
    | {
        readonly file: string;
        readonly preprocessing: string;
        /** Folder with the versions that `clipstack model deploy` has added. @default - only version 1 */
        readonly versions?: string | undefined;
      }
    | undefined;
  /** `http://host:port` of the Triton server with the model. @default - no reload */
  readonly server?: string;
  /**
   * Identifies the other inputs of the server (image, weights, GPUs). A server of another generation is about to be replaced and is
   * not reloaded.
   *
   * @default - a running server is always reloaded
   */
  readonly generation?: string;
  /**
   * Key of the server's model control API.
   *
   * @default - no key
   */
  readonly key?: string;
  /** Maximum time in seconds until the server serves the new configuration. */
  readonly timeoutSeconds: number;
}

/** A load may build TensorRT engines, which takes minutes. */
const defaultTimeoutSeconds = 600;

/** Reads the arguments of `apply-config …`. */
export function readApplyConfigArguments(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
): ApplyConfigOptions {
  const { folder, file, name, model, server, generation, weights, ...rest } = readArguments(
    "apply-config",
    args,
    {
      required: ["folder", "file", "name", "model"],
      optional: ["server", "generation", "timeout-seconds", "weights", "preprocessing", "versions"],
    },
  );
  for (const [option, value] of Object.entries({ name, model })) {
    if (!/^[A-Za-z0-9][\w.-]*$/.test(value)) {
      throw new UsageError(`apply-config: --${option} must be a name, got '${value}'`);
    }
  }
  if (server !== undefined && !/^https?:\/\/[^/\s]+\/?$/.test(server)) {
    throw new UsageError(`apply-config: --server must be http://host:port, got '${server}'`);
  }
  const { preprocessing = "", versions } = rest;
  if (weights !== undefined && !/^[0-9a-f]{64}$/.test(preprocessing)) {
    throw new UsageError(
      `apply-config: --preprocessing must be 64 hexadecimal digits, got '${preprocessing}'`,
    );
  }
  const seconds = rest["timeout-seconds"] ?? String(defaultTimeoutSeconds);
  if (!/^[1-9]\d{0,4}$/.test(seconds)) {
    throw new UsageError(`apply-config: --timeout-seconds must be 1 to 99999, got '${seconds}'`);
  }
  return {
    folder,
    file,
    name,
    model,
    ...(weights !== undefined && { weights: { file: weights, preprocessing, versions } }),
    server: server?.replace(/\/$/, ""),
    generation,
    key: env[modelControlKeyVariable],
    timeoutSeconds: Number(seconds),
  };
}

/** Name of the file with the generation of a folder's server. */
const generationFile = "generation";

/** Maximum time until the previous configuration is served again, in seconds. */
const rollbackSeconds = 60;

/**
 * Writes a model configuration and reloads it in a running Triton. If the reload fails, the previous configuration is restored
 * and reloaded.
 *
 * A server whose name does not resolve is not running yet, and one with `--model-control-mode=none` rejects reloads: both read
 * the configuration at their next start.
 *
 * @returns Result, in one line.
 * @throws {Error} one line: the reason of the failure, and the configuration that is served now
 */
export async function applyConfig(options: ApplyConfigOptions): Promise<string> {
  const { folder, file, name, model, server, generation, key, timeoutSeconds } = options;
  const given = await readFile(file, "utf8").catch((error: Error) => {
    throw new Error(`${model}: the configuration cannot be read: ${error.message}`);
  });
  const text =
    options.weights === undefined
      ? given
      : await withFingerprint(given, basename(file), await latestWeights(options.weights));
  const config = readModelConfig(text, basename(file));
  if (config.name !== model) {
    throw new Error(`${model}: ${basename(file)}: name must be '${model}', got '${config.name}'`);
  }
  const target = join(folder, `${name}.pbtxt`);
  const fileName = `${name}.pbtxt`;
  const previous = await readFile(target, "utf8").catch(unlessMissing);
  const serverGeneration = await readFile(join(folder, generationFile), "utf8").catch(
    unlessMissing,
  );
  await publish(target, text);
  if (generation !== undefined) await publish(join(folder, generationFile), generation);
  const written = `${model}: ${fileName} (sha256 ${sha256(text)}) written`;
  if (server === undefined) return written;
  if (generation !== undefined && generation !== serverGeneration) {
    return `${written}; ${server} is being replaced and reads it at its next start`;
  }

  const triton = new ModelControl(server, model, key);
  try {
    const startedAt = performance.now();
    const loaded = await load(triton, config, timeoutSeconds);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    switch (loaded.kind) {
      case "serves":
        return `${written}, and ${server} serves it after ${seconds} s without a restart`;
      case "absent":
        return `${written}; ${server} does not exist yet and reads it at its start`;
      case "no-control":
        return `${written}; ${server} has model control 'none' and reads it at its next start`;
      case "other-key":
        return `${written}; ${server} has another key and reads it at its next start`;
      case "not-listening":
        // not rejected: the server reads it once it starts
        throw new Error(`${written}, but ${server} did not respond in ${timeoutSeconds} s`);
      case "failed": {
        const seconds = Math.min(rollbackSeconds, timeoutSeconds);
        const rollback = await rollBack(target, previous, triton, seconds);
        throw new Error(`${model}: ${fileName} is not served: ${loaded.reason}; ${rollback}`);
      }
    }
  } finally {
    await triton.close();
  }
}

async function latestWeights({
  file,
  preprocessing,
  versions = "",
}: NonNullable<ApplyConfigOptions["weights"]>): Promise<FingerprintedFile> {
  const latest = (versions === "" ? [] : await versionsIn(versions)).at(-1) ?? "1";
  return latest === "1"
    ? { file, preprocessing, version: "1" }
    : { file: join(versions, latest, basename(file)), preprocessing, version: latest };
}

/** Reloads the model, and verifies that the server then has the configuration. */
function load(
  triton: ModelControl,
  config: ModelConfigJson,
  timeoutSeconds: number,
): Promise<Loaded> {
  return triton.load({
    timeoutSeconds,
    differenceOf: (served) => configDifference(config, served),
  });
}

async function rollBack(
  target: string,
  previous: string | undefined,
  triton: ModelControl,
  timeoutSeconds: number,
): Promise<string> {
  if (previous === undefined) {
    await rm(target, { force: true });
    return "there was no previous configuration";
  }
  await publish(target, previous);
  const restored = "the previous configuration is restored";
  const loaded = await load(triton, readModelConfig(previous, basename(target)), timeoutSeconds);
  return loaded.kind === "serves"
    ? `${restored} and served`
    : `${restored}, but may not be served: ${loaded.kind === "failed" ? loaded.reason : loaded.kind}`;
}

/** Fields of a configuration that a deployment sets. Triton adds values to them but changes none. */
const comparedFields = ["max_batch_size", "dynamic_batching", "instance_group", "optimization"];

/**
 * First field whose value differs from the served configuration.
 *
 * @param served - Response of `/v2/models/M/config`.
 */
export function configDifference(config: ModelConfigJson, served: unknown): string | undefined {
  const actual = (served ?? {}) as Readonly<Record<string, unknown>>;
  for (const field of comparedFields) {
    const difference = firstDifference(config[field], actual[field], field);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

function firstDifference(expected: unknown, got: unknown, path: string): string | undefined {
  // the server chooses fields that are not set
  if (expected === undefined || expected === "") return undefined;
  if (typeof expected !== "object" || expected === null) {
    // 64-bit numbers may be text
    const same = String(expected) === String(got ?? emptyOf(expected));
    return same ? undefined : `${path} ${String(got ?? "not set")}, not ${String(expected)}`;
  }
  const found = (got ?? {}) as Readonly<Record<string, unknown>>;
  // A missing block differs from an empty one: without `dynamic_batching`, Triton does not batch.
  if (got === undefined && Object.keys(expected).length > 0) return `no ${path}`;
  if (Array.isArray(expected) && expected.length > 0 && expected.length !== found.length) {
    return `${path} ${JSON.stringify(got)}, not ${JSON.stringify(expected)}`;
  }
  for (const [key, value] of Object.entries(expected)) {
    const difference = firstDifference(value, found[key], `${path}.${key}`);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

/** Default value that protobuf's JSON omits. */
function emptyOf(value: unknown): unknown {
  return typeof value === "number" ? 0 : typeof value === "boolean" ? false : undefined;
}

/** Replaces a file atomically. Its modification time changes, which makes Triton reload it. */
async function publish(target: string, text: string): Promise<void> {
  const part = `${target}.${ownSuffix()}.part`;
  try {
    const handle = await open(part, "wx", 0o644);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(part, target);
  } catch (error) {
    await rm(part, { force: true }).catch(() => {});
    throw new Error(`${basename(target)} cannot be written: ${(error as Error).message}`);
  }
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}

/** First 12 hexadecimal digits of the SHA-256. */
function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}
