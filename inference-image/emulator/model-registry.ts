import { setMaxListeners } from "node:events";
import type { ResolvedTritonFlags } from "../../contract/triton-flags.ts";
import { configTextOfJson } from "./config-override.ts";
import { ensembleMembers, loadModel, modelFolders, modifiedAt } from "./model-loader.ts";
import { OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** What `/v2/repository/index` says of one model. */
export interface IndexEntry {
  readonly name: string;
  /** Absent while no version was ever loaded. */
  readonly version?: string;
  readonly state?: "READY" | "UNAVAILABLE" | "LOADING" | "UNLOADING";
  readonly reason?: string;
}

export type RegistryFlags = Pick<
  ResolvedTritonFlags,
  | "model-repository"
  | "model-config-name"
  | "model-control-mode"
  | "load-model"
  | "strict-readiness"
  | "exit-on-error"
>;

/**
 * Load the models that the flags ask for.
 *
 * @throws {OipError} for the first bad model, when `--exit-on-error` is on; without it the model is unavailable, and
 *   the index says why.
 */
export async function openModelRegistry(
  flags: RegistryFlags,
  log: (line: string) => void,
): Promise<ModelRegistry> {
  const registry = new ModelRegistry(flags, log);
  await registry.start();
  return registry;
}

interface Entry {
  /** By version, ascending. Empty when loading failed, or after an unload. */
  readonly versions: readonly ServedModel[];
  /** Versions that the index speaks of. */
  readonly known: readonly string[];
  readonly state: "READY" | "UNAVAILABLE" | "LOADING" | "UNLOADING";
  readonly reason: string;
  /** When the model's files were changed before they were loaded. */
  readonly modified?: bigint;
}

/** The models of a Triton model repository: which there are, which are loaded, and whether all is well. */
export class ModelRegistry {
  readonly #flags: RegistryFlags;
  readonly #log: (line: string) => void;
  readonly #entries = new Map<string, Entry>();
  /** Loads and unloads come one after the other. */
  #control: Promise<unknown> = Promise.resolve();
  readonly #exit = new AbortController();

  constructor(flags: RegistryFlags, log: (line: string) => void) {
    this.#flags = flags;
    this.#log = log;
    // each open stream listens
    setMaxListeners(0, this.#exit.signal);
  }

  async start(): Promise<void> {
    const folders = await modelFolders(this.#flags["model-repository"]);
    const explicit = this.#flags["model-control-mode"] === "explicit";
    const wanted = explicit ? this.#flags["load-model"] : folders;
    const names = wanted.includes("*") ? folders : wanted;
    for (const name of names) {
      // an ensemble that came before has loaded it
      if (this.#versionsOf(name).length > 0) continue;
      try {
        await this.#load(name);
      } catch (error) {
        if (!(error instanceof OipError)) throw error;
        this.#log(`failed to load '${name}': ${error.message}`);
        if (this.#flags["exit-on-error"]) {
          await this.close();
          throw new OipError(error.code, `failed to load model '${name}': ${error.message}`, {
            cause: error,
          });
        }
      }
    }
  }

  /** Whether every model that should be there is, and the server is not on its way out. */
  get ready(): boolean {
    if (this.#exit.signal.aborted) return false;
    if (!this.#flags["strict-readiness"]) return true;
    return [...this.#entries.values()].every((entry) => {
      const { state, reason } = stateOf(entry);
      const alive = state === "READY" && entry.versions.every((model) => model.isAlive());
      return alive || reason === unloaded;
    });
  }

  /** Every loaded version, in the order of names and versions. */
  get models(): readonly ServedModel[] {
    return [...this.#entries.keys()].sort().flatMap((name) => this.#entries.get(name)!.versions);
  }

  /**
   * @param version - The latest, when it is empty.
   * @throws {OipError} when it is not there.
   */
  model(name: string, version = ""): ServedModel {
    checkVersion(version);
    const entry = this.#entries.get(name);
    if (entry === undefined) {
      throw new OipError("not-found", `Request for unknown model: '${name}' is not found`);
    }
    if (entry.versions.length === 0 || stateOf(entry).state === "UNAVAILABLE") {
      throw new OipError(
        "not-found",
        `Request for unknown model: '${name}' has no available versions`,
      );
    }
    const found =
      version === ""
        ? entry.versions.at(-1)
        : entry.versions.find((model) => model.version === version);
    if (found !== undefined) return found;
    throw new OipError(
      "not-found",
      `Request for unknown model: '${name}' version ${version} is not found`,
    );
  }

  /** Whether that model takes requests. */
  modelReady(name: string, version = ""): boolean {
    checkVersion(version);
    if (this.#exit.signal.aborted) return false;
    return this.#versionsOf(name).some(
      (model) => (version === "" || model.version === version) && model.isAlive(),
    );
  }

  /**
   * The models to give statistics of: all of them without a name, all versions without a version.
   *
   * @throws {OipError} when there is none.
   */
  statistics(name: string, version = ""): readonly ServedModel[] {
    checkVersion(version);
    if (name === "") return this.models;
    const versions = this.#versionsOf(name);
    if (versions.length === 0) {
      throw new OipError("invalid-argument", `requested model '${name}' is not available`);
    }
    if (version === "") return versions;
    const found = versions.filter((model) => model.version === version);
    if (found.length > 0) return found;
    throw new OipError(
      "invalid-argument",
      `requested model version is not available for model '${name}'`,
    );
  }

  #versionsOf(name: string): readonly ServedModel[] {
    return this.#entries.get(name)?.versions ?? [];
  }

  async index({ readyOnly = false } = {}): Promise<readonly IndexEntry[]> {
    const folders = await modelFolders(this.#flags["model-repository"]);
    const names = [...new Set([...folders, ...this.#entries.keys()])].sort();
    const all = names.flatMap((name): IndexEntry[] => {
      const entry = this.#entries.get(name);
      if (entry === undefined) return [{ name }];
      const { state, reason } = stateOf(entry);
      const rest = { state, ...(reason === "" ? {} : { reason }) };
      if (entry.known.length === 0) return [{ name, ...rest }];
      return entry.known.map((version) => ({ name, version, ...rest }));
    });
    return readyOnly ? all.filter(({ state }) => state === "READY") : all;
  }

  /**
   * Load a model, or load it anew. Requests of the old one are answered.
   *
   * @param configJson - A model configuration in JSON, used instead of the repository's.
   * @throws {OipError} also when the server does not take orders (`--model-control-mode`).
   */
  async load(name: string, configJson?: string): Promise<void> {
    this.#checkControl();
    const override = configJson === undefined ? undefined : configTextOfJson(configJson);
    await this.#inTurn(async () => {
      const folders = await modelFolders(this.#flags["model-repository"]);
      if (!folders.includes(name)) {
        throw new OipError(
          // Triton says INTERNAL of what is the caller's mistake
          "invalid-argument",
          `failed to load '${name}', failed to poll from model repository`,
        );
      }
      // as Triton does it: what runs stays, and an override with it, until its files are changed or it is unloaded
      if (override === undefined && (await this.#isUnchanged(name))) return;
      try {
        await this.#load(name, { override });
      } catch (error) {
        if (!(error instanceof OipError)) throw error;
        this.#log(`failed to load '${name}': ${error.message}`);
        throw new OipError(error.code, `load failed for model '${name}': ${error.message}`, {
          cause: error,
        });
      }
    });
  }

  async #isUnchanged(name: string): Promise<boolean> {
    const entry = this.#entries.get(name);
    if (entry === undefined || entry.versions.length === 0) return false;
    if (!entry.versions.every((model) => model.isAlive())) return false;
    return entry.modified === (await this.#modifiedAt(name));
  }

  #modifiedAt(name: string): Promise<bigint> {
    return modifiedAt({ repository: this.#flags["model-repository"], name });
  }

  async unload(name: string): Promise<void> {
    this.#checkControl();
    await this.#inTurn(async () => {
      const entry = this.#entries.get(name);
      if (entry === undefined) {
        throw new OipError("invalid-argument", "Model to be unloaded has not been served");
      }
      this.#entries.set(name, { ...entry, versions: [], state: "UNAVAILABLE", reason: unloaded });
      await Promise.all(entry.versions.map((model) => model.close()));
      for (const { version } of entry.versions) {
        this.#log(`successfully unloaded '${name}' version ${version}`);
      }
    });
  }

  /** Goes off with {@link beginExit}. */
  get exit(): AbortSignal {
    return this.#exit.signal;
  }

  /** From here on not ready. Requests are still answered, so that those on their way are not lost. */
  beginExit(): void {
    this.#exit.abort();
  }

  /** Answers the requests that were taken on, then frees every model. */
  async close(): Promise<void> {
    this.beginExit();
    // an ensemble answers with the help of its models, which were loaded before it
    const entries = [...this.#entries.values()].reverse();
    const ensembles = entries.filter(({ versions }) => versions.some(isEnsemble));
    for (const { versions } of ensembles) {
      await Promise.all(versions.map((model) => model.close()));
    }
    await Promise.all(this.models.map((model) => model.close()));
  }

  /** The old versions serve until the new ones are there; when loading fails, they stay. */
  async #load(name: string, { override, path = [] }: LoadOptions = {}): Promise<void> {
    await this.#loadParts(name, { override, path });
    const before = this.#entries.get(name);
    if (before === undefined || before.versions.length === 0) {
      this.#entries.set(name, { versions: [], known: [], state: "LOADING", reason: "" });
    }
    try {
      const modified = await this.#modifiedAt(name);
      const versions = await loadModel({
        repository: this.#flags["model-repository"],
        name,
        variant: this.#flags["model-config-name"],
        override,
        modelOf: (other, version) => this.model(other, version),
        before: before?.versions ?? [],
        log: this.#log,
      });
      const known = versions.map(({ version }) => version);
      this.#entries.set(name, { versions, known, state: "READY", reason: "", modified });
      await Promise.all((before?.versions ?? []).map((model) => model.close()));
    } catch (error) {
      if (before === undefined || before.versions.length === 0) {
        const reason = error instanceof Error ? error.message : String(error);
        this.#entries.set(name, {
          versions: [],
          known: before?.known ?? [],
          state: "UNAVAILABLE",
          reason,
        });
      }
      throw error;
    }
  }

  /** Load the models of an ensemble that are not there yet. What is wrong with one, the ensemble will say. */
  async #loadParts(name: string, { override, path = [] }: LoadOptions): Promise<void> {
    const { "model-repository": repository, "model-config-name": variant } = this.#flags;
    const folders = await modelFolders(repository);
    const ancestors = [...path, name];
    for (const part of await ensembleMembers({ repository, name, variant, override })) {
      if (ancestors.includes(part)) {
        throw new OipError(
          "invalid-argument",
          `circular dependency between ensembles: ${[...ancestors, part].join(" -> ")}`,
        );
      }
      if (this.#versionsOf(part).length > 0 || !folders.includes(part)) continue;
      try {
        await this.#load(part, { path: ancestors });
      } catch (error) {
        if (!(error instanceof OipError)) throw error;
        this.#log(`failed to load '${part}': ${error.message}`);
      }
    }
  }

  #checkControl(): void {
    if (this.#exit.signal.aborted) throw new OipError("unavailable", "Server exiting");
    if (this.#flags["model-control-mode"] === "explicit") return;
    throw new OipError(
      "unavailable",
      "explicit model load / unload is not allowed if polling is enabled",
    );
  }

  async #inTurn(change: () => Promise<void>): Promise<void> {
    const turn = this.#control.then(change);
    this.#control = turn.catch(() => {});
    await turn;
  }
}

interface LoadOptions {
  /** The text of a `config.pbtxt`, used instead of the model's own. */
  readonly override?: string;
  /** The ensembles that this one is loaded for. */
  readonly path?: readonly string[];
}

function isEnsemble({ config }: ServedModel): boolean {
  return config.ensemble_scheduling !== undefined;
}

/** An ensemble is only there while its models are: without one of them it is unloaded. */
function stateOf({ state, reason, versions }: Entry): Pick<Entry, "state" | "reason"> {
  const incomplete =
    state === "READY" && versions.some((model) => isEnsemble(model) && !model.isAlive());
  return incomplete ? { state: "UNAVAILABLE", reason: unloaded } : { state, reason };
}

const unloaded = "unloaded";

/** Versions are numbers from 1 on; the empty string is the latest. */
function checkVersion(version: string): void {
  if (version === "" || /^[1-9]\d*$/.test(version)) return;
  throw new OipError(
    "invalid-argument",
    `failed to get model version from specified version string '${version}', version should be an integral value > 0`,
  );
}
