import { setMaxListeners } from "node:events";
import type { ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { messageOf } from "../contract/user-error.ts";
import { configTextOfJson } from "./config-override.ts";
import { ensembleMembers, loadModel, modelFolders, modifiedAt } from "./model-loader.ts";
import { invalidArgument, OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** Entry of `/v2/repository/index`. */
export interface IndexEntry {
  readonly name: string;
  /** Absent if no version has been loaded. */
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
  | "disable-auto-complete-config"
>;

/**
 * Loads the models that the flags select.
 *
 * @throws {OipError} for the first invalid model with `--exit-on-error`; without it, the model is unavailable and the index
 *   contains the reason.
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
  /** Loaded versions, ascending; empty after a failed load or an unload. */
  readonly versions: readonly ServedModel[];
  /** Versions listed in the index. */
  readonly known: readonly string[];
  readonly state: "READY" | "UNAVAILABLE" | "LOADING" | "UNLOADING";
  readonly reason: string;
  readonly modified?: bigint;
  /** Whether it was loaded as a member of an ensemble, and not by its name. */
  readonly isMember?: boolean;
}

/** Loaded models of a Triton model repository: lookup, load, unload and readiness. */
export class ModelRegistry {
  readonly #flags: RegistryFlags;
  readonly #log: (line: string) => void;
  readonly #entries = new Map<string, Entry>();
  /** Tail of the queue of loads and unloads, which run sequentially. */
  #control: Promise<unknown> = Promise.resolve();
  readonly #exit = new AbortController();

  constructor(flags: RegistryFlags, log: (line: string) => void) {
    this.#flags = flags;
    this.#log = log;
    // every open stream adds a listener
    setMaxListeners(0, this.#exit.signal);
  }

  async start(): Promise<void> {
    const folders = await modelFolders(this.#flags["model-repository"]);
    const explicit = this.#flags["model-control-mode"] === "explicit";
    const selected = explicit ? this.#flags["load-model"] : folders;
    const names = selected.includes("*") ? folders : selected;
    for (const name of names) {
      // already loaded by an ensemble
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

  /** Whether all models are loaded and the server is not shutting down. */
  get ready(): boolean {
    if (this.#exit.signal.aborted) return false;
    if (!this.#flags["strict-readiness"]) return true;
    return [...this.#entries.values()].every((entry) => {
      const { state, reason } = stateOf(entry);
      const alive = state === "READY" && entry.versions.every((model) => model.isAlive());
      return alive || reason === unloaded;
    });
  }

  /** All loaded versions, ordered by name and version. */
  get models(): readonly ServedModel[] {
    return [...this.#entries.keys()].sort().flatMap((name) => this.#entries.get(name)!.versions);
  }

  /**
   * Returns a loaded model.
   *
   * @param version - Empty for the latest.
   * @throws {OipError} if it is not loaded
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

  modelReady(name: string, version = ""): boolean {
    checkVersion(version);
    if (this.#exit.signal.aborted) return false;
    return this.#versionsOf(name).some(
      (model) => (version === "" || model.version === version) && model.isAlive(),
    );
  }

  /**
   * Returns the models for a statistics request: all without a name, all versions without a version.
   *
   * @throws {OipError} if there is none
   */
  statistics(name: string, version = ""): readonly ServedModel[] {
    checkVersion(version);
    if (name === "") return this.models;
    const versions = this.#versionsOf(name);
    if (versions.length === 0) {
      throw invalidArgument(`requested model '${name}' is not available`);
    }
    if (version === "") return versions;
    const found = versions.filter((model) => model.version === version);
    if (found.length > 0) return found;
    throw invalidArgument(`requested model version is not available for model '${name}'`);
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
      const status = { state, ...(reason === "" ? {} : { reason }) };
      if (entry.known.length === 0) return [{ name, ...status }];
      return entry.known.map((version) => ({ name, version, ...status }));
    });
    return readyOnly ? all.filter(({ state }) => state === "READY") : all;
  }

  /**
   * Loads or reloads a model. Accepted requests of the previous version are finished.
   *
   * @param configJson - Model configuration in JSON that overrides the repository's.
   * @throws {OipError} if the load fails or model control is disabled (`--model-control-mode`)
   */
  async load(name: string, configJson?: string): Promise<void> {
    this.#checkControl();
    const override = configJson === undefined ? undefined : configTextOfJson(configJson);
    await this.#serialise(async () => {
      const folders = await modelFolders(this.#flags["model-repository"]);
      if (!folders.includes(name)) {
        throw new OipError(
          // Triton sends INTERNAL, but this is an error of the client
          "invalid-argument",
          `failed to load '${name}', failed to poll from model repository`,
        );
      }
      // as in Triton: a loaded model stays, with its override, until its files change or it is unloaded
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

  /** @param withMembers - Also unloads members of the ensemble that were loaded for it: `unload_dependents`. */
  async unload(name: string, { withMembers = false } = {}): Promise<void> {
    this.#checkControl();
    await this.#serialise(async () => {
      const entry = this.#entries.get(name);
      if (entry === undefined) {
        throw invalidArgument("Model to be unloaded has not been served");
      }
      const steps = entry.versions[0]?.config.ensemble_scheduling?.step ?? [];
      await this.#unload(name);
      for (const { model_name: member } of withMembers ? steps : []) {
        if (this.#entries.get(member)?.isMember) await this.#unload(member);
      }
    });
  }

  async #unload(name: string): Promise<void> {
    const entry = this.#entries.get(name)!;
    this.#entries.set(name, { ...entry, versions: [], state: "UNAVAILABLE", reason: unloaded });
    await Promise.all(entry.versions.map((model) => model.close()));
    for (const { version } of entry.versions) {
      this.#log(`successfully unloaded '${name}' version ${version}`);
    }
  }

  /** Aborted by {@link beginExit}. */
  get exit(): AbortSignal {
    return this.#exit.signal;
  }

  /** Makes the server not ready. Requests are still served, so that requests in transit are not lost. */
  beginExit(): void {
    this.#exit.abort();
  }

  /** Finishes accepted requests, then unloads all models. */
  async close(): Promise<void> {
    this.beginExit();
    // ensembles first: their requests need the models that were loaded before them
    const entries = [...this.#entries.values()].reverse();
    const ensembles = entries.filter(({ versions }) => versions.some(isEnsemble));
    for (const { versions } of ensembles) {
      await Promise.all(versions.map((model) => model.close()));
    }
    await Promise.all(this.models.map((model) => model.close()));
  }

  /** Loads a model; the previous versions serve until the new ones are loaded, and stay if the load fails. */
  async #load(name: string, { override, path = [] }: LoadOptions = {}): Promise<void> {
    await this.#loadMembers(name, { override, path });
    const previous = this.#entries.get(name);
    if (previous === undefined || previous.versions.length === 0) {
      this.#entries.set(name, { versions: [], known: [], state: "LOADING", reason: "" });
    }
    try {
      const modified = await this.#modifiedAt(name);
      const versions = await loadModel({
        repository: this.#flags["model-repository"],
        name,
        configName: this.#flags["model-config-name"],
        override,
        completes: this.#completes,
        modelOf: (other, version) => this.model(other, version),
        previous: previous?.versions ?? [],
        log: this.#log,
      });
      const known = versions.map(({ version }) => version);
      const isMember = path.length > 0 || (previous?.versions.length ? previous.isMember : false);
      this.#entries.set(name, { versions, known, state: "READY", reason: "", modified, isMember });
      await Promise.all((previous?.versions ?? []).map((model) => model.close()));
    } catch (error) {
      if (previous === undefined || previous.versions.length === 0) {
        const reason = messageOf(error);
        this.#entries.set(name, {
          versions: [],
          known: previous?.known ?? [],
          state: "UNAVAILABLE",
          reason,
        });
      }
      throw error;
    }
  }

  /** Loads the members of an ensemble that are not loaded. The load of the ensemble reports their errors. */
  async #loadMembers(name: string, { override, path = [] }: LoadOptions): Promise<void> {
    const { "model-repository": repository, "model-config-name": configName } = this.#flags;
    const folders = await modelFolders(repository);
    const ancestors = [...path, name];
    const completes = this.#completes;
    for (const member of await ensembleMembers({
      repository,
      name,
      configName,
      override,
      completes,
    })) {
      if (ancestors.includes(member)) {
        throw invalidArgument(
          `circular dependency between ensembles: ${[...ancestors, member].join(" -> ")}`,
        );
      }
      if (this.#versionsOf(member).length > 0 || !folders.includes(member)) continue;
      try {
        await this.#load(member, { path: ancestors });
      } catch (error) {
        if (!(error instanceof OipError)) throw error;
        this.#log(`failed to load '${member}': ${error.message}`);
      }
    }
  }

  get #completes(): boolean {
    return !this.#flags["disable-auto-complete-config"];
  }

  #checkControl(): void {
    if (this.#exit.signal.aborted) throw new OipError("unavailable", "Server exiting");
    if (this.#flags["model-control-mode"] === "explicit") return;
    throw new OipError(
      "unavailable",
      "explicit model load / unload is not allowed if polling is enabled",
    );
  }

  async #serialise(change: () => Promise<void>): Promise<void> {
    const done = this.#control.then(change);
    this.#control = done.catch(() => {});
    await done;
  }
}

interface LoadOptions {
  /** Text of a `config.pbtxt` that overrides the model's own. */
  readonly override?: string;
  /** Names of the ensembles for which the model is loaded. */
  readonly path?: readonly string[];
}

function isEnsemble({ config }: ServedModel): boolean {
  return config.ensemble_scheduling !== undefined;
}

/** State of an entry. An ensemble is available only while all its members are. */
function stateOf({ state, reason, versions }: Entry): Pick<Entry, "state" | "reason"> {
  const incomplete =
    state === "READY" && versions.some((model) => isEnsemble(model) && !model.isAlive());
  return incomplete ? { state: "UNAVAILABLE", reason: unloaded } : { state, reason };
}

const unloaded = "unloaded";

/** Checks that a version is a positive integer, or empty for the latest. */
function checkVersion(version: string): void {
  if (version === "" || /^[1-9]\d*$/.test(version)) return;
  throw invalidArgument(
    `failed to get model version from specified version string '${version}', version should be an integral value > 0`,
  );
}
