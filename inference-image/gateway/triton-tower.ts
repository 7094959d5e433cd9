import type { Context } from "@opentelemetry/api";
import { TritonPool, type TritonPoolObserver } from "../../client/pool/triton-pool.ts";
import type { GrpcSecurity, GrpcTransport } from "../../client/triton/grpc-transport.ts";
import {
  type CallOptions,
  type ModelMetadata,
  TritonError,
} from "../../client/triton/transport.ts";
import type { TensorParts } from "../../client/triton/wire.ts";
import {
  configuredFingerprint,
  decodedFingerprint,
  type ImageDecoding,
} from "../../contract/fingerprint.ts";
import { executionInstances, type ModelConfig } from "../../contract/model-config.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import type { Tensor, TensorSpec } from "../../contract/tensor.ts";
import { nextModelName } from "../../contract/triton-models.ts";
import { BatchTrace, type RequestTrace } from "../../http/request-trace.ts";
import { embeddingsProblem, rowsOf } from "../../inference/session/embeddings.ts";
import { inputText, type ModelTensors } from "../../inference/session/payload-format.ts";
import { WaitQueue } from "../../inference/threads/wait-queue.ts";
import type { EmbedderObserver, EmbedOptions } from "../models/embedder.ts";
import { whenAllCancelled } from "./batch-signal.ts";

/** Time in ms for which requests wait for a healthy server, because a busy server may respond late. After it, they fail at once. */
const maxLossMs = 2_000;

/** Input that a Triton model accepts. */
export interface TowerPayload<Item> {
  /** Without the batch dimension. */
  readonly tensorSpec: TensorSpec;
  /** Whether a call carries one item, because Triton batches them. */
  readonly single: boolean;
  encode(items: readonly Item[]): EncodedItems;
}

/** Items as a tensor that refers to their memory. */
export interface EncodedItems {
  readonly tensor: TensorParts;
  /** Returns memory for reuse once the call has ended. */
  release?(): void;
}

export interface TritonEmbedderOptions {
  /** `host:port` of the gRPC API of each Triton server; all serve the same model. */
  readonly targets: readonly string[];
  readonly spec: ModelSpec;
  /** Name of the tower in the repositories of the Triton servers. */
  readonly model: string;
  /** @default - neither encryption nor authentication */
  readonly security?: GrpcSecurity | undefined;
  /** Deadline of one inference in milliseconds, including the queue and all attempts. */
  readonly timeoutMs: number;
  /** Maximum number of items per call in addition to the model's. @default - the model's */
  readonly maxBatchSize?: number | undefined;
  /**
   * Maximum number of concurrent calls per Triton server. Further items are queued and batched into the next call, which costs the
   * gateway less than several calls.
   *
   * @default - the number of model instances plus one
   */
  readonly callsPerTriton?: number;
  readonly observer?: EmbedderObserver & TritonPoolObserver;
  /** Decoding of the images. @default "exact" */
  readonly decoding?: ImageDecoding | undefined;
}

export interface TritonTowerOptions<Item> extends TritonEmbedderOptions {
  /** Name of the output with the embeddings. */
  readonly output: string;
  /**
   * Returns the payload for a model with these inputs and outputs.
   *
   * @param createError - Creates the error to throw for an unsupported model from its message.
   */
  payloadOf(metadata: ModelTensors, createError: (problem: string) => Error): TowerPayload<Item>;
}

/** Maximum size of a response without its embeddings: names, shapes and parameters. */
const responseHeadBytes = 64 * 1024;

interface Waiting<Item> {
  readonly item: Item;
  readonly enqueuedAt: number;
  readonly signal: AbortSignal | undefined;
  readonly onTiming: EmbedOptions["onTiming"];
  readonly trace: RequestTrace | undefined;
  resolve(vector: Float32Array): void;
  reject(error: unknown): void;
}

/**
 * One tower of a model behind Triton servers. Calls are balanced over the healthy servers, and a call whose server dies or hangs is retried
 * on another: no accepted request is lost while one is healthy. Without a healthy Triton server, `settle` rejects its items.
 */
export class TritonTower<Item> {
  readonly #options: TritonTowerOptions<Item>;
  #callsPerTriton = 2;
  readonly #pool: TritonPool;
  readonly #queue = new WaitQueue<Waiting<Item>>();
  readonly #calls = new Set<Promise<void>>();
  /** Servers whose model was inspected after their last failed health check. */
  readonly #checked = new WeakSet<GrpcTransport>();
  /** Name in requests to each server that can be used: {@link nextModelName} while a deployment replaces the model. */
  readonly #names = new WeakMap<GrpcTransport, string>();
  /** Fingerprint of the model of each server that can be used. */
  readonly #fingerprints = new Map<GrpcTransport, string | undefined>();
  #fingerprint: string | undefined;
  #payload: TowerPayload<Item> | undefined;
  #maxBatchSize: number;

  constructor(options: TritonTowerOptions<Item>) {
    this.#options = options;
    const { maximum } = options.spec.batching;
    this.#maxBatchSize = Math.min(maximum, options.maxBatchSize ?? maximum);
    this.#pool = new TritonPool({
      ...options.security,
      targets: options.targets,
      check: async (triton, call) => {
        try {
          await this.#check(triton, call);
        } catch (error) {
          this.#fingerprints.delete(triton);
          this.#fingerprint = this.#commonFingerprint();
          throw error;
        }
      },
      observer: {
        onAttemptEnd: (target, ok) => options.observer?.onAttemptEnd(target, ok),
        onEjection: (target) => options.observer?.onEjection?.(target),
        onHealthChange: (target, healthy, reason) => {
          options.observer?.onHealthChange(target, healthy, reason);
          // another healthy Triton server accepts more calls
          this.#dispatch();
        },
      },
    });
  }

  /** Payload of the model, from the first Triton server that responds; `undefined` until then. */
  get payload(): TowerPayload<Item> | undefined {
    return this.#payload;
  }

  /** Fingerprint of the embeddings; undefined if the Triton servers have none, or different ones during a rollout. */
  get fingerprint(): string | undefined {
    return this.#fingerprint;
  }

  #commonFingerprint(): string | undefined {
    const [fingerprint, ...others] = new Set(this.#fingerprints.values());
    if (fingerprint === undefined || others.length > 0) return undefined;
    return decodedFingerprint(fingerprint, this.#options.decoding ?? "exact");
  }

  #setFingerprint(triton: GrpcTransport, fingerprint: string | undefined): void {
    this.#fingerprints.set(triton, fingerprint);
    this.#fingerprint = this.#commonFingerprint();
  }

  /** Number of items that wait for a call. */
  get waitingItems(): number {
    return this.#queue.length;
  }

  get unavailableReason(): string | undefined {
    const { healthy, unhealthyReasons } = this.#pool;
    return healthy > 0
      ? undefined
      : `no Triton server can be used: ${unhealthyReasons || "not connected yet"}`;
  }

  async ready(): Promise<boolean> {
    return this.#pool.healthy > 0;
  }

  /** @returns Unscaled embeddings, or the reason of each item without one. */
  async settle(
    items: readonly Item[],
    options: EmbedOptions = {},
  ): Promise<readonly PromiseSettledResult<Float32Array>[]> {
    const { unavailableReason } = this;
    if (unavailableReason !== undefined && this.#pool.lostMs > maxLossMs) {
      throw new TritonError("unavailable", unavailableReason);
    }
    const vectors = items.map((item) => this.#enqueue(item, options));
    this.#dispatch();
    return await Promise.allSettled(vectors);
  }

  async close(): Promise<void> {
    while (this.#calls.size > 0) await Promise.all(this.#calls);
    await this.#pool.close();
  }

  #enqueue(item: Item, { signal, onTiming, order, trace }: EmbedOptions): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      const cancel = (error: TritonError) => {
        if (this.#queue.delete(waiting)) trace?.stage("queue", waiting.enqueuedAt);
        waiting.reject(error);
      };
      const { model, timeoutMs } = this.#options;
      const onAbort = () =>
        cancel(new TritonError("cancelled", `${model}: the client disconnected`));
      const timer = setTimeout(() => cancel(this.#timeout()), timeoutMs);
      const release = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      const waiting: Waiting<Item> = {
        item,
        enqueuedAt: performance.now(),
        signal,
        onTiming,
        trace,
        resolve: (vector) => {
          release();
          resolve(vector);
        },
        reject: (error) => {
          release();
          reject(error);
        },
      };
      this.#queue.push(waiting, { order });
      signal?.addEventListener("abort", onAbort, { once: true });
      if (signal?.aborted) onAbort();
    });
  }

  /** Sends queued images as long as the servers accept more calls. */
  #dispatch(): void {
    const limit = this.#callsPerTriton * Math.max(1, this.#pool.healthy);
    while (this.#queue.length > 0 && this.#calls.size < limit && this.#payload !== undefined) {
      const batch = [...this.#queue].slice(0, this.#payload.single ? 1 : this.#maxBatchSize);
      for (const waiting of batch) this.#queue.delete(waiting);
      const call: Promise<void> = this.#send(this.#payload, batch).finally(() => {
        this.#calls.delete(call);
        this.#dispatch();
      });
      this.#calls.add(call);
    }
  }

  /** Sends one batch. Errors reject the items of the batch. */
  async #send(payload: TowerPayload<Item>, batch: readonly Waiting<Item>[]): Promise<void> {
    const { observer, timeoutMs, spec } = this.#options;
    const sentAt = performance.now();
    for (const { enqueuedAt } of batch) observer?.onDequeue((sentAt - enqueuedAt) / 1000);
    const cancelled = whenAllCancelled(batch);
    const { model } = this.#options;
    const attributes = { "clipstack.model": model, "clipstack.batch.items": batch.length };
    const traced = BatchTrace.begin(batch, sentAt, attributes);
    let encoded: EncodedItems | undefined;
    try {
      encoded = payload.encode(batch.map(({ item }) => item));
      // The call has the deadline of the newest item. A timer per item ends the others earlier.
      const output = await this.#infer(
        encoded.tensor,
        Math.max(...batch.map(({ enqueuedAt }) => enqueuedAt)) + timeoutMs,
        cancelled.signal,
        traced?.context,
      );
      const inferSeconds = (performance.now() - sentAt) / 1000;
      observer?.onBatch({ items: batch.length, inferSeconds });
      for (const { enqueuedAt, onTiming } of batch) {
        onTiming?.({ queueSeconds: (sentAt - enqueuedAt) / 1000, inferSeconds });
      }
      const rows = rowsOf(output, { count: batch.length, width: spec.embedding.width });
      traced?.end();
      for (const [at, waiting] of batch.entries()) waiting.resolve(rows[at]!);
    } catch (error) {
      traced?.end(error);
      for (const waiting of batch) waiting.reject(error);
    } finally {
      cancelled.release();
      encoded?.release?.();
    }
  }

  async #infer(
    input: TensorParts,
    due: number,
    signal: AbortSignal,
    context: Context | undefined,
  ): Promise<Tensor | undefined> {
    const { model, output: name, spec } = this.#options;
    const { width } = spec.embedding;
    const [count = 0] = input.shape;
    const maxResponseBytes = count * width * Float32Array.BYTES_PER_ELEMENT + responseHeadBytes;
    const timeoutMs = Math.ceil(due - performance.now());
    if (timeoutMs <= 0) throw this.#timeout();
    const outputs = [name];
    const [output] = await this.#pool.run(
      model,
      (triton, options) =>
        triton.infer(this.#names.get(triton) ?? model, [input], {
          ...options,
          outputs,
          maxResponseBytes,
          context,
        }),
      {
        timeoutMs,
        signal,
        problemOf: ([embeddings]) => embeddingsProblem(embeddings, { count, width }),
      },
    );
    return output;
  }

  #timeout(): TritonError {
    const { model, timeoutMs } = this.#options;
    const targets = this.#pool.target;
    return new TritonError("timeout", `${model}: no response from ${targets} in ${timeoutMs} ms`);
  }

  /** Checks that a server has the model with the same input as the others. @throws {TritonError} with a one-line message if it has not */
  async #check(triton: GrpcTransport, options: CallOptions): Promise<void> {
    const { model, payloadOf } = this.#options;
    const checked = this.#checked.delete(triton);
    // also of a known Triton, because a deployment may have replaced the weights
    const metadata = await this.#latestOf(triton, options);
    const config = await triton.modelConfig(metadata.name, options);
    this.#names.set(triton, metadata.name);
    const fingerprint = await this.#fingerprintOf(triton, config, metadata, options);
    if (checked) {
      this.#setFingerprint(triton, fingerprint);
      this.#checked.add(triton);
      return;
    }
    const payload = payloadOf(metadata, (problem) => new TritonError("rejected", problem));
    const previous = this.#payload;
    // without calls in flight, the model of all servers may change
    const mayChange =
      this.#pool.healthy === 0 && this.#calls.size === 0 && payload.single === previous?.single;
    if (
      previous !== undefined &&
      previous.tensorSpec.dataType !== payload.tensorSpec.dataType &&
      !mayChange
    ) {
      const [input, others] = [payload, previous].map(({ tensorSpec }) => inputText(tensorSpec));
      throw new TritonError(
        "rejected",
        `${model} has the input ${input}, but ${others} on the other Triton servers`,
      );
    }
    this.#payload = payload;
    this.#maxBatchSize = Math.min(this.#maxBatchSize, Number(config.max_batch_size) || 1);
    this.#callsPerTriton =
      this.#options.callsPerTriton ??
      // one image per call: Triton batches them
      (payload.single
        ? 2 * this.#maxBatchSize
        : Math.max(1, executionInstances(config as unknown as ModelConfig, 1)) + 1);
    this.#setFingerprint(triton, fingerprint);
    this.#checked.add(triton);
  }

  /** Metadata of the model under the name that has the latest version. @throws {TritonError} if the server has neither */
  async #latestOf(triton: GrpcTransport, options: CallOptions): Promise<ModelMetadata> {
    const metadataOf = async (name: string) => {
      await triton.requireReady(name, options);
      return { ...(await triton.modelMetadata(name, options)), name };
    };
    const { model } = this.#options;
    const [current, next] = await Promise.allSettled([model, nextModelName(model)].map(metadataOf));
    const versionOf = (found: typeof current) =>
      found?.status === "fulfilled" ? Math.max(...found.value.versions.map(Number)) : 0;
    if (next?.status === "fulfilled" && versionOf(next) > versionOf(current)) return next.value;
    if (current?.status === "fulfilled") return current.value;
    throw current?.reason;
  }

  /** Reads the fingerprint of a model. For an ensemble, that of its last step, which computes the embeddings. */
  async #fingerprintOf(
    triton: GrpcTransport,
    config: Readonly<Record<string, unknown>>,
    { versions }: Pick<ModelMetadata, "versions">,
    options: CallOptions,
  ): Promise<string | undefined> {
    const { ensemble_scheduling: ensemble } = config as unknown as ModelConfig;
    const last = ensemble?.step.at(-1)?.model_name;
    if (last === undefined) return configuredFingerprint(config, versions);
    const metadata = await triton.modelMetadata(last, options);
    return configuredFingerprint(await triton.modelConfig(last, options), metadata.versions);
  }
}
