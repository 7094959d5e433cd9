import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import type { ModelConfig } from "../../contract/model-config.ts";
import { modelControlHeader } from "../../contract/triton-flags.ts";
import { abortedAfter } from "./deadline.ts";

export type Loaded =
  | { readonly kind: "serves" }
  /** The name does not resolve: the container does not exist. */
  | { readonly kind: "absent" }
  /** Connections were refused until the deadline: Triton listens once its models are loaded. */
  | { readonly kind: "not-listening" }
  /** `--model-control-mode` is not `explicit`. */
  | { readonly kind: "no-control" }
  /** The model control API requires another key; Terraform replaces a container whose key changes. */
  | { readonly kind: "other-key" }
  | { readonly kind: "failed"; readonly reason: string };

export interface LoadOptions {
  readonly timeoutSeconds: number;
  /**
   * Maximum time until a server that refuses connections listens.
   *
   * @default - `timeoutSeconds`
   */
  readonly listenSeconds?: number;
  /**
   * Version that the server must serve.
   *
   * @default - any
   */
  readonly version?: string;
  /** Configuration in place of that in the repository. @default - that in the repository */
  readonly config?: object | undefined;
  /** Returns why the served configuration is not the loaded one; undefined if it is. */
  readonly differenceOf?: (servedConfig: unknown) => string | undefined;
}

const unknownName = ["ENOTFOUND", "EAI_AGAIN"];
const notListening = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"];
const retryMs = 500;

/** Client of the model control API for one model of one Triton server. */
export class ModelControl {
  readonly #server: string;
  readonly #model: string;
  readonly #key: string | undefined;
  // the deadline of each call is the only time limit
  readonly #agent = new Agent({ headersTimeout: 0, bodyTimeout: 0, connectTimeout: 10_000 });

  /**
   * @param server - `http://host:port`.
   * @param key - Key of the API, if it requires one.
   */
  constructor(server: string, model: string, key: string | undefined) {
    this.#server = server;
    this.#model = model;
    this.#key = key;
  }

  /** Loads or reloads the model, and waits until the server serves it. */
  async load(options: LoadOptions): Promise<Loaded> {
    const { timeoutSeconds, listenSeconds = timeoutSeconds, version, differenceOf } = options;
    const parameters = options.config && { config: JSON.stringify(options.config) };
    const deadline = abortedAfter(timeoutSeconds * 1000);
    const listenDeadline = abortedAfter(Math.min(listenSeconds, timeoutSeconds) * 1000);
    const failed = (reason: string): Loaded => ({ kind: "failed", reason });
    const model = `models/${this.#model}`;
    const ready = version === undefined ? `${model}/ready` : `${model}/versions/${version}/ready`;
    for (;;) {
      try {
        const load = await this.#call("POST", `repository/${model}/load`, deadline, parameters);
        // Triton's message in every mode but explicit
        if (load.status === 503 && /load \/ unload is not allowed/.test(load.text)) {
          return { kind: "no-control" };
        }
        if (load.status === 403) return { kind: "other-key" };
        if (load.status !== 200) return failed(`${this.#server} rejected it: ${reasonOf(load)}`);
        while ((await this.#call("GET", ready, deadline)).status !== 200) {
          await sleep(retryMs, undefined, { signal: deadline });
        }
        const served = await this.#call("GET", `${model}/config`, deadline);
        const difference = differenceOf?.(JSON.parse(served.text));
        return difference === undefined
          ? { kind: "serves" }
          : failed(`${this.#server} loaded the model, but has ${difference}`);
      } catch (error) {
        if (deadline.aborted) {
          return failed(`${this.#server} did not finish in ${timeoutSeconds} s`);
        }
        const { code = "", message } = error as NodeJS.ErrnoException;
        if (unknownName.includes(code)) return { kind: "absent" };
        if (!notListening.includes(code)) return failed(`${this.#server}: ${message}`);
      }
      const stopped = await sleep(retryMs, false, { signal: listenDeadline }).catch(() => true);
      if (stopped) return { kind: "not-listening" };
    }
  }

  /** Unloads the model, and waits until its accepted requests are finished. A model that is not loaded stays as it is. */
  async unload(timeoutSeconds: number): Promise<void> {
    const deadline = abortedAfter(timeoutSeconds * 1000);
    await this.#call("POST", `repository/models/${this.#model}/unload`, deadline);
    for (;;) {
      const { text } = await this.#call("POST", "repository/index", deadline);
      const index = JSON.parse(text) as readonly { readonly name: string; state?: string }[];
      const own = index.filter(({ name }) => name === this.#model);
      if (own.every(({ state }) => state !== "UNLOADING")) return;
      await sleep(retryMs, undefined, { signal: deadline });
    }
  }

  /** Returns the versions that the server serves; none if the model is not loaded. */
  async servedVersions(timeoutSeconds: number): Promise<readonly string[]> {
    const deadline = abortedAfter(timeoutSeconds * 1000);
    const { status, text } = await this.#call("GET", `models/${this.#model}`, deadline);
    if (status !== 200) return [];
    const { versions = [] } = JSON.parse(text) as { readonly versions?: readonly string[] };
    return versions;
  }

  /** Returns the configuration of the model; undefined if it is not loaded or the server does not respond. */
  async servedConfig(timeoutSeconds: number): Promise<Partial<ModelConfig> | undefined> {
    const deadline = abortedAfter(timeoutSeconds * 1000);
    const path = `models/${this.#model}/config`;
    const response = await this.#call("GET", path, deadline).catch(() => undefined);
    return response?.status === 200 ? JSON.parse(response.text) : undefined;
  }

  async #call(
    method: "GET" | "POST",
    path: string,
    signal: AbortSignal,
    parameters: Readonly<Record<string, string>> = {},
  ): Promise<{ readonly status: number; readonly text: string }> {
    const { statusCode, body } = await request(`${this.#server}/v2/${path}`, {
      method,
      dispatcher: this.#agent,
      signal,
      ...(method === "POST" && {
        body: JSON.stringify({ parameters }),
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
      const message = error.replace(/[;\s]+$/, "");
      // Triton sends no details to the client
      return /failed to poll from model repository$/.test(message)
        ? `${message} (see its log)`
        : message;
    }
  } catch {
    // not JSON
  }
  return `status ${status}${text === "" ? "" : `: ${text.slice(0, 200)}`}`;
}
