import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { RequiredHeader } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type HttpClient,
  type HttpRequest,
  type HttpResponse,
  jsonOf,
  openHttpClient,
  reason,
} from "../../target/requests/http-client.ts";

/**
 * Changes the queue delay of a model's dynamic batcher on a running Triton: the model is reloaded with an override of its
 * configuration (Triton's model repository extension).
 */
export interface QueueDelayControl {
  /** Configured queue delay of the model, in microseconds. */
  readonly originalUs: number;
  /** @param signal - Ends the wait, but not a requested load, which Triton continues. */
  set(microseconds: number, signal?: AbortSignal): Promise<void>;
  /** Restores the configured queue delay. No effect if nothing was changed. */
  restore(): Promise<void>;
  close(): Promise<void>;
}

/** Long, because loading compiles TensorRT engines that are not cached. */
const loadTimeoutMs = 600_000;
const requestTimeoutMs = 30_000;
const pollMs = 50;

const batching = z.looseObject({ max_queue_delay_microseconds: z.coerce.number().default(0) });
const modelConfig = z.looseObject({ dynamic_batching: batching.optional() });
type ModelConfig = z.infer<typeof modelConfig>;

/** Error message of Triton unless `--model-control-mode` is `explicit`. */
const noControl = /load \/ unload is not allowed/;

/**
 * Opens the model control of one model of one Triton server. Reloads the model without a change, to check that control is allowed.
 *
 * @param url - `http://host:port`.
 * @param options.header - Header that the model control API requires.
 */
export async function controlQueueDelay(
  url: string,
  model: string,
  { header, signal }: { readonly header?: RequiredHeader; readonly signal?: AbortSignal } = {},
): Promise<QueueDelayControl> {
  const control = new Control(url, model, header);
  try {
    await control.open(signal);
    return control;
  } catch (error) {
    await control.close();
    throw error;
  }
}

class Control implements QueueDelayControl {
  readonly #http: HttpClient = openHttpClient(2);
  #original: ModelConfig | undefined;
  #changed = false;

  constructor(
    private readonly url: string,
    private readonly model: string,
    private readonly header: RequiredHeader | undefined,
  ) {}

  get originalUs(): number {
    return this.#original?.dynamic_batching?.max_queue_delay_microseconds ?? 0;
  }

  async open(signal?: AbortSignal): Promise<void> {
    this.#original = await this.#config(signal);
    if (this.#original.dynamic_batching === undefined) {
      throw new UserError(`${this.model} at ${this.url} has no dynamic batcher, so no queue delay`);
    }
    // reloads the current configuration, so that missing permission is reported before anything is measured
    await this.#load(this.#original, signal);
    this.#changed = true;
  }

  async set(microseconds: number, signal?: AbortSignal): Promise<void> {
    const original = this.#original as ModelConfig;
    this.#changed = true;
    const batcher = { ...original.dynamic_batching, max_queue_delay_microseconds: microseconds };
    await this.#load({ ...original, dynamic_batching: batcher }, signal);
    await this.#require(microseconds, signal);
  }

  async restore(): Promise<void> {
    if (!this.#changed) return;
    // also as an override: Triton keeps one until the model's files change or it is unloaded, which would interrupt service
    try {
      await this.#load(this.#original as ModelConfig);
      await this.#require(this.originalUs);
    } catch (error) {
      const state = await this.#describeState();
      throw new UserError(
        `${this.model} at ${this.url} ${state}: ${reason(error)}; restore ${this.originalUs} µs: unload and load the model, or restart its Triton`,
      );
    }
    this.#changed = false;
  }

  /** Current queue delay for messages, also if the server does not respond. */
  async #describeState(): Promise<string> {
    try {
      const { dynamic_batching: batcher } = await this.#config();
      return `still has a queue delay of ${batcher?.max_queue_delay_microseconds ?? 0} µs`;
    } catch {
      return `may still have a queue delay other than ${this.originalUs} µs`;
    }
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #require(microseconds: number, signal?: AbortSignal): Promise<void> {
    const got = (await this.#config(signal)).dynamic_batching?.max_queue_delay_microseconds;
    if (got === microseconds) return;
    throw new UserError(
      `${this.model} at ${this.url} must have a queue delay of ${microseconds} µs after loading, got ${got ?? "none"}`,
    );
  }

  async #config(signal?: AbortSignal): Promise<ModelConfig> {
    const response = await this.#send(`models/${this.model}/config`, { signal });
    const parsed = modelConfig.safeParse(jsonOf(response));
    if (response.status === 200 && parsed.success) return parsed.data;
    throw new UserError(
      `${this.model} at ${this.url}: its configuration cannot be read: ${errorText(response)}`,
    );
  }

  /** Loads the model with a configuration in place of the repository's. */
  async #load(config: ModelConfig, signal?: AbortSignal): Promise<void> {
    const parameters = { config: JSON.stringify(config) };
    const response = await this.#send(`repository/models/${this.model}/load`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(this.header !== undefined && { [this.header.name]: this.header.value }),
      },
      body: JSON.stringify({ parameters }),
      timeoutMs: loadTimeoutMs,
    });
    if (noControl.test(response.body.toString("utf8"))) {
      throw new UserError(
        `${this.url} does not allow model control: its --model-control-mode must be explicit to change the queue delay of ${this.model}`,
      );
    }
    if (response.status === 403) {
      throw new UserError(
        `${this.url} requires a key to change the queue delay of ${this.model}: ${errorText(response)}`,
      );
    }
    if (response.status !== 200) {
      throw new UserError(`${this.url} did not load ${this.model}: ${errorText(response)}`);
    }
    const endsAt = performance.now() + loadTimeoutMs;
    while ((await this.#send(`models/${this.model}/ready`, { signal })).status !== 200) {
      if (performance.now() > endsAt) {
        throw new UserError(`${this.model} at ${this.url} was not ready after it was loaded`);
      }
      await sleep(pollMs, undefined, { signal });
    }
  }

  async #send(path: string, options: HttpRequest = {}) {
    try {
      return await this.#http.send(`${this.url}/v2/${path}`, {
        timeoutMs: requestTimeoutMs,
        ...options,
      });
    } catch (error) {
      throw new UserError(`${this.url}: ${reason(error)}`);
    }
  }
}

const errorBody = z.object({ error: z.string() });

function errorText(response: Pick<HttpResponse, "status" | "body">): string {
  const error = errorBody.safeParse(jsonOf(response));
  return error.success ? error.data.error : `status ${response.status}`;
}
