import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { RequiredHeader } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  type HttpAnswer,
  type HttpClient,
  type HttpRequest,
  jsonOf,
  openHttpClient,
  reason,
} from "../run/http-client.ts";

/**
 * Another queue delay of a model's dynamic batcher, while its Triton runs: the model is loaded anew with an override of its
 * configuration, as Triton's model repository extension has it.
 */
export interface QueueDelayControl {
  /** Queue delay that the model has by itself, in microseconds. */
  readonly originalUs: number;
  /**
   * @param signal - Ends the waiting, but not a load that was asked for: its Triton goes on with it anyway.
   * @throws {UserError} one line, where the server does not take it.
   */
  set(microseconds: number, signal?: AbortSignal): Promise<void>;
  /**
   * Load the model as it was. Safe to call when nothing was changed.
   *
   * @throws {UserError} one line that says what the server has now, and how it gets back what it had.
   */
  restore(): Promise<void>;
  close(): Promise<void>;
}

/** A load builds TensorRT's engines, where its cache has none. */
const loadTimeoutMs = 600_000;
const answerTimeoutMs = 30_000;
const pollMs = 50;

const batching = z.looseObject({ max_queue_delay_microseconds: z.coerce.number().default(0) });
const modelConfig = z.looseObject({ dynamic_batching: batching.optional() });
type ModelConfig = z.infer<typeof modelConfig>;

/** Words of Triton where `--model-control-mode` is not `explicit`. */
const noControl = /load \/ unload is not allowed/;

/**
 * Take the model control of one model of one Triton: the model is loaded once as it is, which changes nothing.
 *
 * @param url - `http://host:port`.
 * @param options.header - Header that the model control API requires.
 * @throws {UserError} one line, where the server takes no orders or the model has no dynamic batcher.
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
    // the configuration that it has: whether orders are taken is seen before anything is measured
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
    // as an override too: a Triton keeps one until the model's files change or it is unloaded, which would be a gap
    try {
      await this.#load(this.#original as ModelConfig);
      await this.#require(this.originalUs);
    } catch (error) {
      const has = await this.#has();
      throw new UserError(
        `${this.model} at ${this.url} ${has}: ${reason(error)}; put ${this.originalUs} µs back: unload the model and load it again, or start its Triton anew`,
      );
    }
    this.#changed = false;
  }

  /** In words, also of a server that does not answer. */
  async #has(): Promise<string> {
    try {
      const { dynamic_batching: batcher } = await this.#config();
      return `still has a queue delay of ${batcher?.max_queue_delay_microseconds ?? 0} µs`;
    } catch {
      return `may still have another queue delay than its ${this.originalUs} µs`;
    }
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #require(microseconds: number, signal?: AbortSignal): Promise<void> {
    const got = (await this.#config(signal)).dynamic_batching?.max_queue_delay_microseconds;
    if (got === microseconds) return;
    throw new UserError(
      `${this.model} at ${this.url} was loaded with a queue delay of ${microseconds} µs, but serves ${got ?? "none"}`,
    );
  }

  async #config(signal?: AbortSignal): Promise<ModelConfig> {
    const answer = await this.#send(`models/${this.model}/config`, { signal });
    const parsed = modelConfig.safeParse(jsonOf(answer));
    if (answer.status === 200 && parsed.success) return parsed.data;
    throw new UserError(
      `${this.model} at ${this.url}: its configuration cannot be read: ${said(answer)}`,
    );
  }

  /** Have the model loaded with a configuration in place of the repository's. */
  async #load(config: ModelConfig, signal?: AbortSignal): Promise<void> {
    const parameters = { config: JSON.stringify(config) };
    const answer = await this.#send(`repository/models/${this.model}/load`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(this.header !== undefined && { [this.header.name]: this.header.value }),
      },
      body: JSON.stringify({ parameters }),
      timeoutMs: loadTimeoutMs,
    });
    if (noControl.test(answer.body.toString("utf8"))) {
      throw new UserError(
        `${this.url} takes no orders: its --model-control-mode must be explicit to change the queue delay of ${this.model}`,
      );
    }
    if (answer.status === 403) {
      throw new UserError(
        `${this.url} requires a key to change the queue delay of ${this.model}: ${said(answer)}`,
      );
    }
    if (answer.status !== 200) {
      throw new UserError(`${this.url} did not load ${this.model}: ${said(answer)}`);
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
        timeoutMs: answerTimeoutMs,
        ...options,
      });
    } catch (error) {
      throw new UserError(`${this.url}: ${reason(error)}`);
    }
  }
}

const errorAnswer = z.object({ error: z.string() });

function said(answer: Pick<HttpAnswer, "status" | "body">): string {
  const error = errorAnswer.safeParse(jsonOf(answer));
  return error.success ? error.data.error : `status ${answer.status}`;
}
