import type { Tensor } from "../contract/tensor.ts";
import { type Batcher, EngineError, type InferOptions, type InferResult } from "../engine/types.ts";

/**
 * Passes on one request at a time, so that none is batched with another: what Triton does for a model without
 * `dynamic_batching`.
 */
export function oneAtATime(batcher: Batcher): Batcher {
  return new OneAtATime(batcher);
}

interface Waiting {
  readonly items: number;
  start(): void;
}

class OneAtATime implements Batcher {
  readonly #batcher: Batcher;
  readonly #queue: Waiting[] = [];
  #running = false;
  #draining = false;
  #drained: (() => void)[] = [];

  constructor(batcher: Batcher) {
    this.#batcher = batcher;
  }

  get maxBatchSize(): number {
    return this.#batcher.maxBatchSize;
  }

  get pendingRequests(): number {
    return this.#queue.length + (this.#running ? 1 : 0);
  }

  get queuedItems(): number {
    return this.#queue.reduce((sum, waiting) => sum + waiting.items, 0);
  }

  async infer(inputs: readonly Tensor[], options: InferOptions = {}): Promise<InferResult> {
    if (this.#draining) throw new EngineError("draining", "no new requests are taken");
    const enqueuedAt = performance.now();
    await this.#turn(inputs[0]?.shape[0] ?? 1, options);
    try {
      const waitedUs = (performance.now() - enqueuedAt) * 1000;
      const result = await this.#batcher.infer(inputs, { signal: options.signal });
      const { timing } = result;
      return { ...result, timing: { ...timing, queueUs: timing.queueUs + waitedUs } };
    } finally {
      this.#running = false;
      this.#next();
    }
  }

  async drain(): Promise<void> {
    this.#draining = true;
    if (this.pendingRequests > 0) {
      await new Promise<void>((resolve) => this.#drained.push(resolve));
    }
    await this.#batcher.drain();
  }

  /** Resolves when it is this request's turn. */
  #turn(items: number, { signal, queueTimeoutMs }: InferOptions): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = (why: string) => {
        const index = this.#queue.indexOf(waiting);
        if (index < 0) return;
        this.#queue.splice(index, 1);
        release();
        reject(new EngineError("expired", why));
      };
      const onAbort = () => leave("the caller went away");
      const timer =
        queueTimeoutMs === undefined
          ? undefined
          : setTimeout(() => leave(`waited longer than ${queueTimeoutMs} ms`), queueTimeoutMs);
      const release = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
      };
      const waiting: Waiting = {
        items,
        start: () => {
          release();
          resolve();
        },
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#queue.push(waiting);
      this.#next();
      if (signal?.aborted) onAbort();
    });
  }

  #next(): void {
    if (this.#running) return;
    const waiting = this.#queue.shift();
    if (waiting === undefined) {
      for (const resolve of this.#drained.splice(0)) resolve();
      return;
    }
    this.#running = true;
    waiting.start();
  }
}
