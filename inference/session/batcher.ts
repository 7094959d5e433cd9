import type { Tensor } from "../../contract/tensor.ts";
import { messageOf } from "../../contract/user-error.ts";
import { InferenceError } from "../threads/inference-error.ts";
import { WaitQueue } from "../threads/wait-queue.ts";
import { checkOutputs, concatenate, sliceRows } from "./batch-tensors.ts";
import type { InferOptions, InferResult, ModelSession, RequestTiming } from "./types.ts";

export interface BatcherOptions {
  /** Maximum number of items in one execution and in one request. */
  readonly maxBatchSize: number;
  /**
   * Batch sizes that are executed without further delay (dispatch `delayed`).
   *
   * @default [] - only `maxBatchSize`
   */
  readonly preferredBatchSizes?: readonly number[];
  /**
   * Maximum delay of a request to fill a batch. Timers have a resolution of 1 ms.
   *
   * @default 0
   */
  readonly maxQueueDelayMicroseconds?: number;
  /**
   * Start of a batch that is not full while the session is idle:
   *
   * - `delayed`: as in Triton, at a preferred size or after the delay of the oldest request.
   * - `eager`: immediately. While requests are announced it is held for the delay, but at most half of the batch's expected run
   *   time, because a larger batch takes less time per image.
   * - `single`: immediately, with one request per batch, as in Triton without `dynamic_batching`.
   *
   * @default "delayed"
   */
  readonly dispatch?: "delayed" | "eager" | "single";
  /** Called after each execution, before its requests are resolved. */
  readonly onExecution?: (execution: Execution) => void;
}

/** One run of the model. */
export interface Execution {
  readonly batchSize: number;
  /** The requests of the batch, in order of arrival. */
  readonly requests: readonly {
    readonly items: number;
    readonly timing: RequestTiming;
    /** Of the request's options. */
    readonly caller?: unknown;
  }[];
  /** Time in the runtime; 0 if it failed. */
  readonly inferUs: number;
  readonly error?: InferenceError;
}

interface QueuedRequest {
  readonly inputs: readonly Tensor[];
  /** Whether the inputs need no copy. */
  readonly transferred: boolean;
  readonly items: number;
  /** Requests can share a batch if their keys are equal. */
  readonly shapeKey: string;
  readonly enqueuedAt: number;
  readonly caller: unknown;
  resolve(result: InferResult): void;
  reject(error: InferenceError): void;
}

/** Maximum time that a batch waits for announced requests, as a share of its expected run time. */
const maxHoldShare = 0.5;

/** Weight of the latest execution in the moving average of the time per item. */
const latestWeight = 0.25;

/**
 * Batches requests for one session in first-in-first-out order, or in the given order. A request is never split, and all items of a batch have one shape.
 * The number of concurrent batches is the session's number of instances.
 */
export class Batcher {
  readonly maxBatchSize: number;
  readonly #session: ModelSession;
  readonly #options: BatcherOptions;
  readonly #delayMs: number;
  /** Sizes at which a `delayed` batch starts without delay. */
  readonly #preferred: ReadonlySet<number>;
  /** Size from which any batch starts without delay. */
  readonly #immediateSize: number;
  readonly #queue = new WaitQueue<QueuedRequest>();
  #runningBatches = 0;
  #runningRequests = 0;
  #announced = 0;
  /** Moving average of the time in the runtime per item; infinite before the first execution. */
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
    this.#immediateSize = Math.min(this.maxBatchSize, Math.max(0, ...this.#preferred) || Infinity);
  }

  get pendingRequests(): number {
    return this.#queue.length + this.#runningRequests;
  }

  get queuedItems(): number {
    return itemsOf(this.#queue);
  }

  /**
   * @param inputs - Inputs of the session, in its order, with 1 to `maxBatchSize` items along the first dimension. The caller must not
   *   change them until the request has ended.
   * @throws {InferenceError} and nothing else.
   */
  infer(inputs: readonly Tensor[], options: InferOptions = {}): Promise<InferResult> {
    return new Promise((resolve, reject) => {
      if (this.#draining) throw new InferenceError("draining", "no new requests are accepted");
      const items = inputs[0]!.shape[0]!;
      const shapeKey = inputs.map(({ shape }) => shape.slice(1).join("x")).join(";");
      const { signal, queueTimeoutMs: timeoutMs, order, caller } = options;
      const transferred = options.inputs === "transferred";
      const enqueuedAt = performance.now();
      const request = { inputs, transferred, items, shapeKey, enqueuedAt, caller, resolve, reject };
      this.#queue.push(request, { signal, timeoutMs, order }, (expiry) => {
        const reason =
          expiry === "aborted" ? "the caller disconnected" : `waited longer than ${timeoutMs} ms`;
        reject(new InferenceError("expired", reason));
        this.#dispatch();
      });
      this.#dispatch();
    });
  }

  /**
   * Announces a request whose images are still being decoded.
   *
   * @returns Ends the announcement; call it after `infer()` or if the request fails.
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

  /** Rejects new requests and resolves once the accepted ones have completed. */
  drain(): Promise<void> {
    this.#draining = true;
    return new Promise((resolve) => {
      this.#onIdle.push(resolve);
      this.#dispatch();
    });
  }

  /** Starts due batches on idle instances and sets a timer for the next one. */
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
      for (const request of batch) this.#queue.delete(request);
      void this.#execute(batch);
    }
    if (this.#draining && this.pendingRequests === 0) {
      for (const resolve of this.#onIdle.splice(0)) resolve();
    }
  }

  /** Delay in milliseconds of the oldest request of an incomplete batch, counted from its arrival. */
  #holdMs(batch: readonly QueuedRequest[]): number {
    if (this.#options.dispatch !== "eager") return this.#delayMs;
    if (this.#announced === 0) return 0;
    return Math.min(this.#delayMs, maxHoldShare * itemsOf(batch) * this.#itemMs);
  }

  /**
   * Returns the oldest requests that fit into one batch, and whether it starts without delay. A `delayed` batch is cut at the largest
   * preferred size it reaches, unless the delay of its oldest request has passed.
   */
  #nextBatch(idleInstances: number): { batch: readonly QueuedRequest[]; ready: boolean } {
    const { dispatch } = this.#options;
    const first = this.#queue.first!;
    const share =
      idleInstances > 1 && dispatch === "eager"
        ? Math.ceil(this.queuedItems / idleInstances)
        : this.maxBatchSize;
    const batch: QueuedRequest[] = [];
    let items = 0;
    let preferred = 0;
    let full = false;
    for (const request of this.#queue) {
      const together = items + request.items;
      full =
        batch.length > 0 &&
        (dispatch === "single" ||
          together > this.maxBatchSize ||
          request.shapeKey !== first.shapeKey);
      if (full || (batch.length > 0 && together > share)) break;
      batch.push(request);
      items = together;
      if (this.#preferred.has(items)) preferred = batch.length;
    }
    const isDelayOver = performance.now() - first.enqueuedAt >= this.#delayMs;
    if (preferred > 0 && !isDelayOver && !this.#draining) {
      return { batch: batch.slice(0, preferred), ready: true };
    }
    return { batch, ready: full || this.#draining || items >= this.#immediateSize };
  }

  async #execute(batch: readonly QueuedRequest[]): Promise<void> {
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
      this.#updateItemTime(inferUs / 1000 / batchSize);
      checkOutputs(outputs, batchSize);
    } catch (error) {
      failure =
        error instanceof InferenceError
          ? error
          : new InferenceError("failed", messageOf(error), { cause: error });
    }

    const totalUs = (performance.now() - startedAt) * 1000;
    const requests = batch.map(({ items, enqueuedAt, caller }) => {
      const timing: RequestTiming = {
        queueUs: (startedAt - enqueuedAt) * 1000,
        computeInputUs: inputUs,
        computeInferUs: inferUs,
        computeOutputUs: Math.max(0, totalUs - inputUs - inferUs),
      };
      return { items, timing, caller };
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

  /** Returns the inputs of a batch in memory that may be transferred to the session. */
  #inputsOf(batch: readonly QueuedRequest[], batchSize: number): readonly Tensor[] {
    const [first] = batch;
    if (batch.length === 1 && first?.transferred) return first.inputs;
    return this.#session.inputs.map((_, index) =>
      concatenate(
        batch.map(({ inputs }) => inputs[index]!),
        batchSize,
      ),
    );
  }

  #updateItemTime(itemMs: number): void {
    this.#itemMs = Number.isFinite(this.#itemMs)
      ? this.#itemMs + (itemMs - this.#itemMs) * latestWeight
      : itemMs;
  }
}

function itemsOf(requests: Iterable<Pick<QueuedRequest, "items">>): number {
  let sum = 0;
  for (const { items } of requests) sum += items;
  return sum;
}
