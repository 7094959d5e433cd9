import { createHash } from "node:crypto";
import { open, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { type ModelConfigJson, readModelConfig } from "../../client/triton/model-config.ts";
import { modelControlHeader, modelControlKeyVariable } from "../../contract/triton-flags.ts";
import { ownSuffix } from "../../model-tools/publish-file.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface ApplyConfigOptions {
  /** Folder of the model's named configurations: `configs/` of its folder in the repository. */
  readonly folder: string;
  /** The new configuration, as text. */
  readonly file: string;
  /** The variant: what the server has as `--model-config-name`. */
  readonly name: string;
  /** Name of the model. */
  readonly model: string;
  /** `http://host:port` of the Triton that serves it. Without it nobody is asked. */
  readonly server?: string;
  /**
   * What a server is started with besides its configuration (image, weights, GPUs), in one word. A server that was started
   * with other things is about to be replaced, and is not asked.
   *
   * @default - nothing: a server that runs is asked
   */
  readonly generation?: string;
  /**
   * Key of the server's model control API.
   *
   * @default - the API is not restricted
   */
  readonly key?: string;
  /** How long the server may take until it serves the new configuration. */
  readonly timeoutSeconds: number;
}

/** A load builds TensorRT's engines, where the cache has none: minutes. */
const defaultTimeoutSeconds = 600;

/** Of `apply-config …`. @throws {UsageError} */
export function readApplyConfigArguments(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>> = {},
): ApplyConfigOptions {
  const { folder, file, name, model, server, generation, ...rest } = readArguments(
    "apply-config",
    args,
    {
      required: ["folder", "file", "name", "model"],
      optional: ["server", "generation", "timeout-seconds"],
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
  const seconds = rest["timeout-seconds"] ?? String(defaultTimeoutSeconds);
  if (!/^[1-9]\d{0,4}$/.test(seconds)) {
    throw new UsageError(`apply-config: --timeout-seconds must be 1 to 99999, got '${seconds}'`);
  }
  return {
    folder,
    file,
    name,
    model,
    server: server?.replace(/\/$/, ""),
    generation,
    key: env[modelControlKeyVariable],
    timeoutSeconds: Number(seconds),
  };
}

/** Name of the file that says what the server of a folder was started with. */
const generationFile = "generation";

/** How long the old configuration may take, at most, to be served again. */
const putBackSeconds = 60;

/**
 * Put a model configuration where a Triton reads it, and have a server that runs already load it. Where it does not, the
 * configuration before is put back, and loaded.
 *
 * A server whose name does not resolve is not there yet, and one with `--model-control-mode=none` takes no orders: both
 * read the configuration when they start.
 *
 * @returns What was done, in one line.
 * @throws {Error} one line: what was refused, by whom, and what is served now.
 */
export async function applyConfig(options: ApplyConfigOptions): Promise<string> {
  const { folder, file, name, model, server, generation, key, timeoutSeconds } = options;
  const text = await readFile(file, "utf8").catch((error: Error) => {
    throw new Error(`${model}: the configuration cannot be read: ${error.message}`);
  });
  const config = readModelConfig(text, basename(file));
  if (config.name !== model) {
    throw new Error(`${model}: ${basename(file)}: name must be '${model}', got '${config.name}'`);
  }
  const target = join(folder, `${name}.pbtxt`);
  const shown = `${name}.pbtxt`;
  const before = await readFile(target, "utf8").catch(unlessMissing);
  const startedWith = await readFile(join(folder, generationFile), "utf8").catch(unlessMissing);
  await publish(target, text);
  if (generation !== undefined) await publish(join(folder, generationFile), generation);
  const placed = `${model}: ${shown} (sha256 ${sha256(text)}) is in place`;
  if (server === undefined) return placed;
  if (generation !== undefined && generation !== startedWith) {
    return `${placed}; ${server} reads it when it is started with the rest`;
  }

  const triton = new TritonControl(server, model, key);
  try {
    const startedAt = performance.now();
    const loaded = await triton.load(config, timeoutSeconds);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    switch (loaded.kind) {
      case "serves":
        return `${placed}, and ${server} serves it after ${seconds} s, without a restart`;
      case "absent":
        return `${placed}; there is no ${server} yet: it reads it when it starts`;
      case "no-control":
        return `${placed}; ${server} has model control 'none': it reads it when it starts`;
      case "other-key":
        return `${placed}; ${server} was started with another key: it reads it when it starts`;
      case "not-listening":
        // nobody has refused it: whoever starts there should read it
        throw new Error(`${placed}, but ${server} did not answer in ${timeoutSeconds} s`);
      case "failed": {
        const seconds = Math.min(putBackSeconds, timeoutSeconds);
        const back = await putBack(target, before, triton, seconds);
        throw new Error(`${model}: ${shown} is not served: ${loaded.reason}; ${back}`);
      }
    }
  } finally {
    await triton.close();
  }
}

/** @returns What was put back, and whether it is served. */
async function putBack(
  target: string,
  before: string | undefined,
  triton: TritonControl,
  timeoutSeconds: number,
): Promise<string> {
  if (before === undefined) {
    await rm(target, { force: true });
    return "there was none before";
  }
  await publish(target, before);
  const back = "the configuration before is back";
  const loaded = await triton.load(readModelConfig(before, basename(target)), timeoutSeconds);
  return loaded.kind === "serves"
    ? `${back}, and served`
    : `${back}, but not known to be served: ${loaded.kind === "failed" ? loaded.reason : loaded.kind}`;
}

type Loaded =
  | { readonly kind: "serves" }
  /** Nobody has that name: there is no container of it. */
  | { readonly kind: "absent" }
  /** Nobody listened there in all the time: Triton does when its models are loaded. */
  | { readonly kind: "not-listening" }
  /** `--model-control-mode` is not `explicit`. */
  | { readonly kind: "no-control" }
  /** Its model control API requires another key; Terraform replaces a container whose key has changed. */
  | { readonly kind: "other-key" }
  | { readonly kind: "failed"; readonly reason: string };

/** Codes of a name that does not resolve. */
const unknownName = ["ENOTFOUND", "EAI_AGAIN"];
/** Codes of a server that does not listen yet. */
const notListening = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"];
const betweenTriesMs = 500;

/** The model control of one model of one Triton. */
class TritonControl {
  readonly #server: string;
  readonly #model: string;
  readonly #key: string | undefined;
  // the deadline of each call is the only time limit
  readonly #agent = new Agent({ headersTimeout: 0, bodyTimeout: 0, connectTimeout: 10_000 });

  constructor(server: string, model: string, key: string | undefined) {
    this.#server = server;
    this.#model = model;
    this.#key = key;
  }

  /** Have the model loaded anew, and look whether the server then has that configuration. */
  async load(config: ModelConfigJson, timeoutSeconds: number): Promise<Loaded> {
    const deadline = AbortSignal.timeout(timeoutSeconds * 1000);
    const failed = (reason: string): Loaded => ({ kind: "failed", reason });
    for (;;) {
      try {
        const model = `models/${this.#model}`;
        const load = await this.#call("POST", `repository/${model}/load`, deadline);
        // Triton's words for every other mode than explicit
        if (load.status === 503 && /load \/ unload is not allowed/.test(load.text)) {
          return { kind: "no-control" };
        }
        if (load.status === 403) return { kind: "other-key" };
        if (load.status !== 200) return failed(`${this.#server} refused it: ${reasonOf(load)}`);
        while ((await this.#call("GET", `${model}/ready`, deadline)).status !== 200) {
          await sleep(betweenTriesMs, undefined, { signal: deadline });
        }
        const served = await this.#call("GET", `${model}/config`, deadline);
        const difference = configDifference(config, JSON.parse(served.text));
        return difference === undefined
          ? { kind: "serves" }
          : failed(`${this.#server} loaded the model, but has ${difference}`);
      } catch (error) {
        if (deadline.aborted) {
          return failed(`${this.#server} did not do it in ${timeoutSeconds} s`);
        }
        const { code = "", message } = error as NodeJS.ErrnoException;
        if (unknownName.includes(code)) return { kind: "absent" };
        if (!notListening.includes(code)) return failed(`${this.#server}: ${message}`);
      }
      const stopped = await sleep(betweenTriesMs, false, { signal: deadline }).catch(() => true);
      if (stopped) return { kind: "not-listening" };
    }
  }

  async #call(
    method: "GET" | "POST",
    path: string,
    signal: AbortSignal,
  ): Promise<{ readonly status: number; readonly text: string }> {
    const { statusCode, body } = await request(`${this.#server}/v2/${path}`, {
      method,
      dispatcher: this.#agent,
      signal,
      ...(method === "POST" && {
        body: "{}",
        headers: {
          "content-type": "application/json",
          ...(this.#key !== undefined && { [modelControlHeader]: this.#key }),
        },
      }),
    });
    return { status: statusCode, text: await body.text() };
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }
}

function reasonOf({ status, text }: { readonly status: number; readonly text: string }): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === "string") {
      const said = error.replace(/[;\s]+$/, "");
      // Triton tells the client no more than that
      return /failed to poll from model repository$/.test(said) ? `${said} (see its log)` : said;
    }
  } catch {
    // not Triton's words, then
  }
  return `status ${status}${text === "" ? "" : `: ${text.slice(0, 200)}`}`;
}

/** Fields of a configuration that a deployment changes. A server adds to them, and changes nothing. */
const comparedFields = ["max_batch_size", "dynamic_batching", "instance_group", "optimization"];

/**
 * The first thing that a server has another value of.
 *
 * @param served - What it gives at `/v2/models/M/config`.
 */
export function configDifference(config: ModelConfigJson, served: unknown): string | undefined {
  const has = (served ?? {}) as Readonly<Record<string, unknown>>;
  for (const field of comparedFields) {
    const difference = firstDifference(config[field], has[field], field);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

function firstDifference(wanted: unknown, got: unknown, path: string): string | undefined {
  // what is not said is the server's to choose
  if (wanted === undefined || wanted === "") return undefined;
  if (typeof wanted !== "object" || wanted === null) {
    // numbers of 64 bits may be text
    const same = String(wanted) === String(got ?? emptyOf(wanted));
    return same ? undefined : `${path} ${String(got ?? "not set")}, not ${String(wanted)}`;
  }
  const found = (got ?? {}) as Readonly<Record<string, unknown>>;
  if (Array.isArray(wanted) && wanted.length > 0 && wanted.length !== found.length) {
    return `${path} ${JSON.stringify(got) ?? "not set"}, not ${JSON.stringify(wanted)}`;
  }
  for (const [key, value] of Object.entries(wanted)) {
    const difference = firstDifference(value, found[key], `${path}.${key}`);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

/** What protobuf's JSON leaves out. */
function emptyOf(value: unknown): unknown {
  return typeof value === "number" ? 0 : typeof value === "boolean" ? false : undefined;
}

/** Put a file in its place so that a server reads the whole of one or the other. Its time is now: a server looks at that. */
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

/** The beginning of it, which names a text well enough. */
function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}
