import type { Tensor } from "../../contract/tensor.ts";
import { WaitQueue } from "../wait-queue.ts";
import { checkOutputs, concatenate, sliceRows } from "./batch-tensors.ts";
import {
  InferenceError,
  type InferOptions,
  type InferResult,
  type ModelSession,
  type RequestTiming,
} from "./types.ts";

export interface BatcherOptions {
  /** Most items in one execution, and in one request. */
  readonly maxBatchSize: number;
  /**
   * Sizes that are executed without waiting any longer (dispatch `delayed`).
   *
   * @default [] - only `maxBatchSize`
   */
  readonly preferredBatchSizes?: readonly number[];
  /**
   * How long a request may be held back to fill a batch. Timers have a resolution of 1 ms.
   *
   * @default 0
   */
  readonly maxQueueDelayMicroseconds?: number;
  /**
   * When a batch starts that is not full, while the session is idle:
   *
   * - `delayed`: as in Triton, when it has a preferred size or the oldest request has waited the delay.
   * - `eager`: at once; while announced requests are on their way after the delay, but never later than half the time that
   *   the batch will take, because an image in a larger batch takes less time.
   * - `single`: at once, and each request is a batch of its own, as in Triton without `dynamic_batching`.
   *
   * @default "delayed"
   */
  readonly dispatch?: "delayed" | "eager" | "single";
  /** Called after each execution, before its requests are answered. */
  readonly onExecution?: (execution: Execution) => void;
}

/** One run of the model. */
export interface Execution {
  readonly batchSize: number;
  /** The requests of the batch, in order of arrival. */
  readonly requests: readonly { readonly items: number; readonly timing: RequestTiming }[];
  /** Time inside the runtime; 0 when it failed. */
  readonly inferUs: number;
  readonly error?: InferenceError;
}

interface Waiting {
  readonly inputs: readonly Tensor[];
  /** The inputs need not be copied. */
  readonly taken: boolean;
  readonly items: number;
  /** Requests fit into one batch if their keys are equal. */
  readonly shapeKey: string;
  readonly enqueuedAt: number;
  resolve(result: InferResult): void;
  reject(error: InferenceError): void;
}

/** Maximum share of a batch's own time for which it is held back while announced requests are to come. */
const heldForShare = 0.5;

/** Weight of the newest execution in the time per item. */
const learnedShare = 0.25;

/**
 * Batches requests for one session, first in, first out. A request is never split, and a batch holds only items of one
 * shape. The session runs as many batches at once as it has instances.
 */
export class Batcher {
  readonly maxBatchSize: number;
  readonly #session: ModelSession;
  readonly #options: BatcherOptions;
  readonly #delayMs: number;
  /** Sizes with which a `delayed` batch starts without waiting for its delay. */
  readonly #preferred: ReadonlySet<number>;
  /** Size from which any batch does. */
  readonly #enough: number;
  readonly #queue = new WaitQueue<Waiting>();
  #runningBatches = 0;
  #runningRequests = 0;
  #announced = 0;
  /** Time in the runtime per item, over the last executions; unknown before the first. */
  #itemMs = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #draining = false;
  #onIdle: (() => void)[] = [];

  constructor(session: ModelSession, options: BatcherOptions) {
    this.maxBatchSize = options.maxBatchSize;
    this.#session = session;
    this.#options = options;
    this.#delayMs = (options.maxQueueDelayMicroseconds ?? 0) / 1000;
    this.#preferred = new Set(
      options.dispatch === undefined || options.dispatch === "delayed"
        ? options.preferredBatchSizes
        : [],
    );
    this.#enough = Math.min(this.maxBatchSize, Math.max(0, ...this.#preferred) || Infinity);
  }

  /** Requests that wait or run. */
  get pendingRequests(): number {
    return this.#queue.length + this.#runningRequests;
  }

  /** Items (images) that wait. */
  get queuedItems(): number {
    return itemsOf(this.#queue);
  }

  /**
   * @param inputs - Those of the session, in its order, with 1 to `maxBatchSize` items along the first dimension. They are
   *   copied, unless the options say that they may be taken; the caller must not change them until it has the answer.
   * @throws {InferenceError} and nothing else.
   */
  infer(inputs: readonly Tensor[], options: InferOptions = {}): Promise<InferResult> {
    return new Promise((resolve, reject) => {
      if (this.#draining) throw new InferenceError("draining", "no new requests are taken");
      const items = inputs[0]!.shape[0]!;
      const shapeKey = inputs.map(({ shape }) => shape.slice(1).join("x")).join(";");
      const { signal, queueTimeoutMs: timeoutMs } = options;
      const taken = options.inputs === "taken";
      const enqueuedAt = performance.now();
      const waiting = { inputs, taken, items, shapeKey, enqueuedAt, resolve, reject };
      this.#queue.push(waiting, { signal, timeoutMs }, (expiry) => {
        const reason =
          expiry === "aborted" ? "the caller went away" : `waited longer than ${timeoutMs} ms`;
        reject(new InferenceError("expired", reason));
        this.#dispatch();
      });
      this.#dispatch();
    });
  }

  /**
   * Announces a request, for example while its images are decoded.
   *
   * @returns Call it once, after `infer()` or when the request will not come.
   */
  announce(): () => void {
    this.#announced += 1;
    let settled = false;
    return () => {
      if (settled) return;
      settled = true;
      this.#announced -= 1;
      this.#dispatch();
    };
  }

  /** Rejects new requests, answers the accepted ones, then resolves. */
  drain(): Promise<void> {
    this.#draining = true;
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
      this.#dispatch();
    });
  }

  /** Starts the batches that are due on idle instances, and sets a timer for the next one. */
  #dispatch(): void {
    clearTimeout(this.#timer);
    const instances = this.#session.instances ?? 1;
    while (this.#queue.length > 0 && this.#runningBatches < instances) {
      const { batch, ready } = this.#nextBatch(instances - this.#runningBatches);
      const waitMs = ready ? 0 : batch[0]!.enqueuedAt + this.#holdMs(batch) - performance.now();
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#dispatch(), Math.ceil(waitMs));
        return;
      }
      for (const waiting of batch) this.#queue.delete(waiting);
      void this.#execute(batch);
    }
    if (this.#draining && this.pendingRequests === 0) {
      for (const resolve of this.#onIdle.splice(0)) resolve();
    }
  }

  /** How long the oldest request of a batch that is not full is held back, from its arrival. */
  #holdMs(batch: readonly Waiting[]): number {
    if (this.#options.dispatch !== "eager") return this.#delayMs;
    if (this.#announced === 0) return 0;
    return Math.min(this.#delayMs, heldForShare * itemsOf(batch) * this.#itemMs);
  }

  /**
   * Oldest requests that fit into one batch, and whether it starts without waiting for more. A `delayed` batch ends at the
   * largest preferred size that is reached, until its oldest request has waited the delay.
   */
  #nextBatch(idleInstances: number): { batch: readonly Waiting[]; ready: boolean } {
    const { dispatch } = this.#options;
    const first = this.#queue.first!;
    const share =
      idleInstances > 1 && dispatch === "eager"
        ? Math.ceil(this.queuedItems / idleInstances)
        : this.maxBatchSize;
    const batch: Waiting[] = [];
    let items = 0;
    let preferred = 0;
    let full = false;
    for (const waiting of this.#queue) {
      const together = items + waiting.items;
      full =
        batch.length > 0 &&
        (dispatch === "single" ||
          together > this.maxBatchSize ||
          waiting.shapeKey !== first.shapeKey);
      if (full || (batch.length > 0 && together > share)) break;
      batch.push(waiting);
      items = together;
      if (this.#preferred.has(items)) preferred = batch.length;
    }
    const late = performance.now() - first.enqueuedAt >= this.#delayMs;
    if (preferred > 0 && !late && !this.#draining) {
      return { batch: batch.slice(0, preferred), ready: true };
    }
    return { batch, ready: full || this.#draining || items >= this.#enough };
  }

  async #execute(batch: readonly Waiting[]): Promise<void> {
    this.#runningBatches += 1;
    this.#runningRequests += batch.length;
    const startedAt = performance.now();
    const batchSize = itemsOf(batch);
    let outputs: readonly Tensor[] = [];
    let [inferUs, inputUs] = [0, 0];
    let failure: InferenceError | undefined;
    try {
      const inputs = this.#inputsOf(batch, batchSize);
      inputUs = (performance.now() - startedAt) * 1000;
      ({ outputs, inferUs } = await this.#session.run(inputs));
      this.#learn(inferUs / 1000 / batchSize);
      checkOutputs(outputs, batchSize);
    } catch (error) {
      failure =
        error instanceof InferenceError
          ? error
          : new InferenceError("failed", messageOf(error), { cause: error });
    }

    const totalUs = (performance.now() - startedAt) * 1000;
    const requests = batch.map(({ items, enqueuedAt }) => {
      const timing: RequestTiming = {
        queueUs: (startedAt - enqueuedAt) * 1000,
        computeInputUs: inputUs,
        computeInferUs: inferUs,
        computeOutputUs: Math.max(0, totalUs - inputUs - inferUs),
      };
      return { items, timing };
    });
    try {
      this.#options.onExecution?.({ batchSize, requests, inferUs, error: failure });
    } finally {
      let row = 0;
      for (const [index, { items, resolve, reject }] of batch.entries()) {
        const { timing } = requests[index]!;
        const own = row;
        row += items;
        if (failure !== undefined) reject(failure);
        else {
          resolve({ outputs: outputs.map((all) => sliceRows(all, own, items)), timing, batchSize });
        }
      }
      this.#runningBatches -= 1;
      this.#runningRequests -= batch.length;
      this.#dispatch();
    }
  }

  /** Inputs of a batch, in memory that the session may take over. */
  #inputsOf(batch: readonly Waiting[], batchSize: number): readonly Tensor[] {
    const [first] = batch;
    if (batch.length === 1 && first?.taken) return first.inputs;
    return this.#session.inputs.map((_, index) =>
      concatenate(
        batch.map(({ inputs }) => inputs[index]!),
        batchSize,
      ),
    );
  }

  #learn(itemMs: number): void {
    this.#itemMs = Number.isFinite(this.#itemMs)
      ? this.#itemMs + (itemMs - this.#itemMs) * learnedShare
      : itemMs;
  }
}

function itemsOf(requests: Iterable<Pick<Waiting, "items">>): number {
  let sum = 0;
  for (const { items } of requests) sum += items;
  return sum;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
