import type { GrpcSecurity, GrpcTransport } from "../../client/triton/grpc-transport.ts";
import { type CallOptions, TritonError } from "../../client/triton/transport.ts";
import { TritonPool, type TritonPoolObserver } from "../../client/triton/triton-pool.ts";
import { executionInstances, type ModelConfig } from "../../contract/model-config.ts";
import { openclipVitB32 } from "../../contract/model-signature.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { rowsOf, unitVector } from "../../inference/session/embeddings.ts";
import {
  inputText,
  type PayloadFormat,
  payloadFormatOf,
} from "../../inference/session/payload-format.ts";
import { WaitQueue } from "../../inference/wait-queue.ts";
import type { Embedder, EmbedderObserver, EmbedOptions } from "../embed/embedder.ts";
import { EmbedError } from "../http/embed-error.ts";

export interface TritonEmbedderOptions {
  /** `host:port` of each Triton's gRPC; all serve the same model. */
  readonly targets: readonly string[];
  readonly model: string;
  /** @default - neither encryption nor authentication */
  readonly security?: GrpcSecurity | undefined;
  /** Deadline of one inference in milliseconds, including the queue and all attempts. */
  readonly timeoutMs: number;
  /** Maximum number of images per call, also bounded by the model. */
  readonly maxBatchSize: number;
  /**
   * Maximum number of concurrent calls per Triton. Further images are queued and batched into the next call, which costs the
   * gateway less than several calls.
   *
   * @default - the number of model instances plus one
   */
  readonly callsPerTriton?: number;
  readonly observer?: EmbedderObserver & TritonPoolObserver;
}

interface Waiting {
  readonly image: Uint8Array;
  readonly enqueuedAt: number;
  readonly signal: AbortSignal | undefined;
  readonly onTiming: EmbedOptions["onTiming"];
  resolve(vector: Float32Array): void;
  reject(error: unknown): void;
}

/**
 * Creates the backend `triton`. Calls are balanced over the healthy Tritons, and a call whose Triton dies or hangs is retried on
 * another: no accepted request is lost while one is healthy. Without a healthy Triton, `embed` rejects images.
 */
export function createTritonEmbedder(options: TritonEmbedderOptions): Embedder {
  return new TritonEmbedder(options);
}

class TritonEmbedder implements Embedder {
  readonly #options: TritonEmbedderOptions;
  #callsPerTriton = 2;
  readonly #pool: TritonPool;
  readonly #queue = new WaitQueue<Waiting>();
  readonly #calls = new Set<Promise<void>>();
  /** Tritons whose model was inspected after their last failed health check. */
  readonly #checked = new WeakSet<GrpcTransport>();
  #payload: PayloadFormat | undefined;
  #maxBatchSize: number;

  constructor(options: TritonEmbedderOptions) {
    this.#options = options;
    this.#maxBatchSize = options.maxBatchSize;
    this.#pool = new TritonPool({
      ...options.security,
      targets: options.targets,
      check: (triton, call) => this.#check(triton, call),
      observer: {
        ended: (target, ok) => options.observer?.ended(target, ok),
        health: (target, healthy, reason) => {
          options.observer?.health(target, healthy, reason);
          // another healthy Triton accepts more calls
          this.#dispatch();
        },
      },
    });
  }

  /** Input of the model, from the first Triton that responds; `undefined` until then. */
  get input(): Embedder["input"] {
    return this.#payload?.input;
  }

  get waitingImages(): number {
    return this.#queue.length;
  }

  get unavailableReason(): string | undefined {
    const { healthy, unhealthyReasons } = this.#pool;
    return healthy > 0
      ? undefined
      : `no Triton can be used: ${unhealthyReasons || "not connected yet"}`;
  }

  async ready(): Promise<boolean> {
    return this.#pool.healthy > 0;
  }

  announce(): () => void {
    return () => {};
  }

  async embed(
    images: readonly Uint8Array[],
    options: EmbedOptions = {},
  ): Promise<readonly Float32Array[]> {
    const { unavailableReason } = this;
    if (unavailableReason !== undefined) throw new TritonError("unavailable", unavailableReason);
    const vectors = images.map((image) => this.#enqueue(image, options));
    this.#dispatch();
    const results = await Promise.allSettled(vectors);
    return results.map((result, index) => {
      if (result.status === "fulfilled") return unitVector(result.value, index);
      throw rejectionOf(result.reason, index) ?? result.reason;
    });
  }

  async close(): Promise<void> {
    while (this.#calls.size > 0) await Promise.all(this.#calls);
    await this.#pool.close();
  }

  #enqueue(image: Uint8Array, { signal, onTiming }: EmbedOptions): Promise<Float32Array> {
    return new Promise((resolve, reject) => {
      const cancel = (error: TritonError) => {
        this.#queue.delete(waiting);
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
      const waiting: Waiting = {
        image,
        enqueuedAt: performance.now(),
        signal,
        onTiming,
        resolve: (vector) => {
          release();
          resolve(vector);
        },
        reject: (error) => {
          release();
          reject(error);
        },
      };
      this.#queue.push(waiting);
      signal?.addEventListener("abort", onAbort, { once: true });
      if (signal?.aborted) onAbort();
    });
  }

  /** Sends queued images as long as the Tritons accept more calls. */
  #dispatch(): void {
    const limit = this.#callsPerTriton * Math.max(1, this.#pool.healthy);
    while (this.#queue.length > 0 && this.#calls.size < limit && this.#payload !== undefined) {
      const maxImages = this.#payload.input === "encoded" ? 1 : this.#maxBatchSize;
      const batch = [...this.#queue].slice(0, maxImages);
      for (const waiting of batch) this.#queue.delete(waiting);
      const call: Promise<void> = this.#send(this.#payload, batch).finally(() => {
        this.#calls.delete(call);
        this.#dispatch();
      });
      this.#calls.add(call);
    }
  }

  /** Sends one batch. Errors reject the images of the batch. */
  async #send(payload: PayloadFormat, batch: readonly Waiting[]): Promise<void> {
    const { observer, timeoutMs } = this.#options;
    const sentAt = performance.now();
    for (const { enqueuedAt } of batch) observer?.queued((sentAt - enqueuedAt) / 1000);
    const cancelled = whenAllCancelled(batch);
    try {
      const input = payload.tensor(batch.map(({ image }) => image));
      // deadline of the newest image: the others have their own timers
      const output = await this.#infer(
        input,
        batch.at(-1)!.enqueuedAt + timeoutMs,
        cancelled.signal,
      );
      const inferSeconds = (performance.now() - sentAt) / 1000;
      observer?.batch({ images: batch.length, inferSeconds });
      for (const { enqueuedAt, onTiming } of batch) {
        onTiming?.({ queueSeconds: (sentAt - enqueuedAt) / 1000, inferSeconds });
      }
      const rows = rowsOf(output, batch.length);
      for (const [at, waiting] of batch.entries()) waiting.resolve(rows[at]!);
    } catch (error) {
      for (const waiting of batch) waiting.reject(error);
    } finally {
      cancelled.release();
    }
  }

  async #infer(input: Tensor, due: number, signal: AbortSignal): Promise<Tensor | undefined> {
    const { model } = this.#options;
    const timeoutMs = Math.ceil(due - performance.now());
    if (timeoutMs <= 0) throw this.#timeout();
    const outputs = [openclipVitB32.outputs[0].name];
    const [output] = await this.#pool.run(
      model,
      (triton, options) => triton.infer(model, [input], { ...options, outputs }),
      { timeoutMs, signal },
    );
    return output;
  }

  #timeout(): TritonError {
    const { model, timeoutMs } = this.#options;
    const targets = this.#pool.target;
    return new TritonError("timeout", `${model}: no response from ${targets} in ${timeoutMs} ms`);
  }

  /** Checks that a Triton serves the model with the same input as the others. @throws {TritonError} one line */
  async #check(triton: GrpcTransport, options: CallOptions): Promise<void> {
    const { model } = this.#options;
    const checked = this.#checked.delete(triton);
    await triton.requireReady(model, options);
    if (checked) {
      this.#checked.add(triton);
      return;
    }
    const metadata = await triton.modelMetadata(model, options);
    const payload = payloadFormatOf(
      model,
      metadata,
      (problem) => new TritonError("rejected", problem),
    );
    const config = await triton.modelConfig(model, options);
    const previous = this.#payload;
    // without calls in flight, the model of all Tritons may change
    const mayChange =
      this.#pool.healthy === 0 && this.#calls.size === 0 && payload.input === previous?.input;
    if (previous !== undefined && previous !== payload && !mayChange) {
      const [input, others] = [payload, previous].map(({ signature }) => inputText(signature));
      throw new TritonError(
        "rejected",
        `${model} has the input ${input}, but ${others} on the other Tritons`,
      );
    }
    this.#payload = payload;
    this.#maxBatchSize = Math.min(this.#maxBatchSize, Number(config.max_batch_size) || 1);
    this.#callsPerTriton =
      this.#options.callsPerTriton ??
      // one image per call: Triton batches them
      (payload.input === "encoded"
        ? 2 * this.#maxBatchSize
        : Math.max(1, executionInstances(config as unknown as ModelConfig, 1)) + 1);
    this.#checked.add(triton);
  }
}

/** Returns the error for an image that the model rejected, with its index in the request. */
function rejectionOf(error: unknown, index: number): EmbedError | undefined {
  if (!(error instanceof TritonError) || error.code !== "rejected") return undefined;
  const [, reason] = /\bimage 0 (.+?)(?: \(gRPC .*\)| \(HTTP .*\))?$/s.exec(error.message) ?? [];
  if (reason === undefined) return undefined;
  const code = reason.startsWith("is not a")
    ? "unsupported_media_type"
    : / pixels, more than /.test(reason)
      ? "too_large"
      : "undecodable_image";
  return new EmbedError(code, `image ${index} ${reason}`, index, { cause: error });
}

/** Returns a signal that is aborted once the clients of all images of a batch have disconnected. */
function whenAllCancelled(batch: readonly Waiting[]): { signal: AbortSignal; release(): void } {
  const controller = new AbortController();
  const abortIfAll = () => {
    if (batch.every(({ signal }) => signal?.aborted)) controller.abort();
  };
  for (const { signal } of batch) signal?.addEventListener("abort", abortIfAll, { once: true });
  return {
    signal: controller.signal,
    release() {
      for (const { signal } of batch) signal?.removeEventListener("abort", abortIfAll);
    },
  };
}
