import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Loaded, ModelControl } from "../../client/triton/model-control.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import { nextModelName } from "../../contract/triton-models.ts";
import { parametersOfFile } from "./fingerprint.ts";

export interface VersionReplacementOptions {
  /** `http://host:port` of the Triton server. */
  readonly url: string;
  /** Key of the model control API, if it requires one. */
  readonly key: string | undefined;
  /** Folder of the model, named like the model, with the version in it. A link named {@link nextModelName} leads to the same folder. */
  readonly folder: string;
  readonly version: string;
}

/** Time after which every gateway calls the model by its new name: several of a gateway's health checks. */
const switchMs = 2_000;
/** Maximum time until the previous version is unloaded, in seconds. Its accepted requests are finished first. */
const unloadSeconds = 60;
const pollMs = 200;

/** Maximum time in seconds to wait for a server. It is short because the server already runs and serves the previous version. */
const listenSeconds = 5;

/**
 * Replaces the version of a model that one Triton server serves. Triton up to release 25.12 promises that the load of a served model interrupts
 * no request; its later manuals do not. Therefore the version is first loaded under the second name of the model, to which gateways switch
 * because it has the later version. Then the model itself is loaded, to which they return, and the second name is unloaded. A version
 * that cannot be loaded never affects the model.
 */
export class VersionReplacement {
  readonly #options: VersionReplacementOptions;
  readonly #name: string;
  readonly #model: ModelControl;
  readonly #next: ModelControl;

  constructor(options: VersionReplacementOptions) {
    const { url, key, folder } = options;
    this.#options = options;
    this.#name = basename(folder);
    this.#model = new ModelControl(url, this.#name, key);
    this.#next = new ModelControl(url, nextModelName(this.#name), key);
  }

  /** @param restore - Removes the version from the folder of the model; called if the model cannot be loaded with it. */
  async run(timeoutSeconds: number, restore: () => Promise<void>): Promise<Loaded> {
    const { version } = this.#options;
    const limits = { timeoutSeconds, listenSeconds, version };
    const served = await this.servedConfig();
    // nothing is interrupted if the model is not loaded
    if (served === undefined) return this.#model.load(limits);
    const pinned = served.version_policy?.specific?.versions.map(Number);
    if (pinned !== undefined && !pinned.includes(Number(version))) {
      return { kind: "failed", reason: `version_policy must allow it, got only ${pinned.join()}` };
    }
    const config = await this.#configOfNext(served);
    const next = await this.#next.load({ ...limits, config });
    if (next.kind !== "serves") {
      // it may still be loading
      if (next.kind === "failed") await this.#unloadNext();
      return next;
    }
    try {
      await sleep(switchMs);
      const loaded = await this.#model.load(limits);
      if (loaded.kind !== "serves") {
        await restore();
        await this.reload(timeoutSeconds);
      }
      return loaded;
    } finally {
      await sleep(switchMs);
      await this.#unloadNext();
    }
  }

  /** A server that does not respond keeps it until its restart; gateways prefer the model, which has the same version. */
  async #unloadNext(): Promise<void> {
    await this.#next.unload(unloadSeconds).catch(() => {});
  }

  /** Returns the configuration of the model; undefined if it is not loaded or the server does not respond. */
  servedConfig(): Promise<Partial<ModelConfig> | undefined> {
    return this.#model.servedConfig(listenSeconds);
  }

  /** Loads the latest version in the folder of the model. */
  reload(timeoutSeconds: number): Promise<Loaded> {
    return this.#model.load({ timeoutSeconds, listenSeconds });
  }

  /** Returns the served versions, once only the new one is served if the policy keeps no other: Triton unloads in the background. */
  async servedVersions(): Promise<readonly string[]> {
    const config = await this.servedConfig();
    const { latest, all, specific } = config?.version_policy ?? {};
    const keepsOthers =
      all !== undefined || specific !== undefined || (latest?.num_versions ?? 1) > 1;
    const deadline = performance.now() + unloadSeconds * 1000;
    for (;;) {
      const served = await this.#model.servedVersions(unloadSeconds);
      if (keepsOthers || served.length === 1 || performance.now() > deadline) return served;
      await sleep(pollMs);
    }
  }

  close(): Promise<unknown> {
    return Promise.all([this.#model.close(), this.#next.close()]);
  }

  async #configOfNext(served: Partial<ModelConfig>): Promise<Partial<ModelConfig>> {
    const { version, folder } = this.#options;
    const file = join(folder, version, served.default_model_filename || "model.onnx");
    return {
      ...served,
      name: nextModelName(this.#name),
      version_policy: { specific: { versions: [Number(version)] } },
      parameters: {
        ...served.parameters,
        ...(await parametersOfFile(served, { file, version })),
      },
    };
  }
}
