import { bytesPerElement, elementCount, type Tensor, type TensorSpec } from "../contract/tensor.ts";
import {
  type Batcher,
  EngineError,
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
  /** How long a request may be held back to fill a batch. Timers are as fine as 1 ms. */
  readonly maxQueueDelayMicroseconds: number;
  /**
   * Items that may wait. A request that finds nobody waiting is always taken.
   *
   * @default Infinity
   */
  readonly maxQueueSize?: number;
  /**
   * When the model is idle and a batch is not full: `delayed` waits for more, as Triton does, until a preferred size is
   * there or the oldest request has waited the delay; `eager` runs what there is, and waits only while announced requests
   * are on their way, up to the delay and never longer than half the time that the batch will take. The processor is busy
   * meanwhile, with what is announced, and an image of a larger batch takes less of it.
   *
   * @default "delayed"
   */
  readonly dispatch?: "delayed" | "eager";
  /** Called after each execution, before its requests are answered. */
  readonly onExecution?: (execution: Execution) => void;
}

/** One run of the model. */
export interface Execution {
  readonly batchSize: number;
  /** The requests that were put together, in the order of their arrival. */
  readonly requests: readonly { readonly items: number; readonly timing: RequestTiming }[];
  /** Time inside the runtime; 0 when it failed. */
  readonly inferUs: number;
  readonly error?: EngineError;
}

/** A {@link Batcher} that can be told of requests to come. */
export interface AnnouncingBatcher extends Batcher {
  /**
   * Say that a request is on its way, for example while its images are decoded.
   *
   * @returns Call it once, after `infer()` or when the request will not come.
   */
  announce(): () => void;
}

/**
 * Put requests together into batches for one session, first come, first served. A request is never split, and a batch
 * holds only items of one shape. The session runs as many batches at once as it has instances; what waits and runs is shared
 * evenly among them.
 */
export function createBatcher(session: ModelSession, options: BatcherOptions): AnnouncingBatcher {
  return new DynamicBatcher(session, options);
}

interface Waiting {
  readonly inputs: readonly Tensor[];
  /** The inputs need not be copied. */
  readonly taken: boolean;
  readonly items: number;
  /** Two requests fit into one batch when their keys are equal. */
  readonly shapeKey: string;
  readonly enqueuedAt: number;
  resolve(result: InferResult): void;
  reject(error: EngineError): void;
  /** Forgets the timer and the abort listener. */
  release(): void;
}

/** Part of the time that a batch will take for which it is held back, at most, while announced requests are to come. */
const heldForShare = 0.5;

/**
 * Items of a batch from which two instances of a model, a batch in each, do more than one instance with all: with fewer, most
 * of the time is that of the weights, which each instance reads for itself.
 */
const worthwhileBatch = 2;

/** Items of a batch from which a larger one takes no less time for each. */
const efficientBatch = 4;

/**
 * Most items in one batch where so many items are computed by some instances. All of them where they are too few to be divided;
 * else half of an even share, where that is efficient: an instance that is faster takes more of such batches. Together they take
 * no more memory than one batch of the maximum.
 */
export function shareOf(items: number, instances: number, maxBatchSize: number): number {
  if (instances === 1 || items < instances * worthwhileBatch) return maxBatchSize;
  const even = Math.ceil(Math.min(maxBatchSize, items) / instances);
  return Math.min(even, Math.max(efficientBatch, Math.ceil(even / 2)));
}

/** How much the newest execution counts in what is known of the runtime's speed. */
const learnedShare = 0.25;

class DynamicBatcher implements AnnouncingBatcher {
  readonly maxBatchSize: number;
  readonly #session: ModelSession;
  readonly #preferred: ReadonlySet<number>;
  readonly #largestPreferred: number;
  readonly #delayMs: number;
  readonly #maxQueueSize: number;
  readonly #eager: boolean;
  readonly #onExecution: BatcherOptions["onExecution"];

  readonly #queue: Waiting[] = [];
  #queuedItems = 0;
  readonly #running = new Set<readonly Waiting[]>();
  #runningItems = 0;
  #announced = 0;
  /** What the runtime takes for an item, of the last executions; unknown before the first. */
  #itemMs = Infinity;
  #timer: NodeJS.Timeout | undefined;
  #draining = false;
  readonly #idle: (() => void)[] = [];

  constructor(session: ModelSession, options: BatcherOptions) {
    const { maxBatchSize, preferredBatchSizes = [] } = options;
    this.maxBatchSize = maxBatchSize;
    this.#session = session;
    this.#preferred = new Set(preferredBatchSizes);
    this.#largestPreferred = Math.min(
      maxBatchSize,
      Math.max(0, ...preferredBatchSizes) || Infinity,
    );
    this.#delayMs = options.maxQueueDelayMicroseconds / 1000;
    this.#maxQueueSize = options.maxQueueSize ?? Infinity;
    this.#eager = options.dispatch === "eager";
    this.#onExecution = options.onExecution;
  }

  get pendingRequests(): number {
    let running = 0;
    for (const batch of this.#running) running += batch.length;
    return this.#queue.length + running;
  }

  get queuedItems(): number {
    return this.#queuedItems;
  }

  infer(inputs: readonly Tensor[], options: InferOptions = {}): Promise<InferResult> {
    return new Promise((resolve, reject) => {
      if (this.#draining) throw new EngineError("draining", "no new requests are taken");
      const { items, shapeKey } = checkInputs(inputs, this.#session.inputs, this.maxBatchSize);
      if (this.#queue.length > 0 && this.#queuedItems + items > this.#maxQueueSize) {
        throw new EngineError(
          "overloaded",
          `${this.#queuedItems} items wait, and ${items} more are over the limit of ${this.#maxQueueSize}`,
        );
      }
      const { signal, queueTimeoutMs } = options;
      if (signal?.aborted) throw new EngineError("expired", "the caller went away");

      const onAbort = () => this.#drop(waiting, "the caller went away");
      const timer =
        queueTimeoutMs === undefined
          ? undefined
          : setTimeout(
              () => this.#drop(waiting, `waited longer than ${queueTimeoutMs} ms`),
              queueTimeoutMs,
            );
      const waiting: Waiting = {
        inputs,
        taken: options.inputs === "taken",
        items,
        shapeKey,
        enqueuedAt: performance.now(),
        resolve,
        reject,
        release: () => {
          clearTimeout(timer);
          signal?.removeEventListener("abort", onAbort);
        },
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#queue.push(waiting);
      this.#queuedItems += items;
      this.#dispatch();
    });
  }

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

  drain(): Promise<void> {
    this.#draining = true;
    this.#dispatch();
    if (this.pendingRequests === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  #drop(waiting: Waiting, why: string): void {
    const index = this.#queue.indexOf(waiting);
    if (index < 0) return;
    this.#queue.splice(index, 1);
    this.#queuedItems -= waiting.items;
    waiting.release();
    waiting.reject(new EngineError("expired", why));
    this.#dispatch();
    this.#reportIdle();
  }

  /** Start batches while an instance is idle and the time has come; otherwise make sure to look again. */
  #dispatch(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    while (this.#running.size < this.#instances && this.#startNext());
  }

  get #instances(): number {
    return this.#session.instances ?? 1;
  }

  /** @returns whether a batch was started */
  #startNext(): boolean {
    const oldest = this.#queue[0];
    if (oldest === undefined) return false;
    const { count, items, final } = this.#nextBatch();
    const holdMs = this.#eager
      ? Math.min(this.#delayMs, heldForShare * items * this.#itemMs)
      : this.#delayMs;
    const waitMs = oldest.enqueuedAt + holdMs - performance.now();
    const hurry = this.#draining || (this.#eager && this.#announced === 0);
    if (final || hurry || waitMs <= 0) {
      void this.#execute(this.#queue.splice(0, count));
      return true;
    }
    this.#timer = setTimeout(() => this.#dispatch(), Math.ceil(waitMs));
    return false;
  }

  /**
   * How many of the waiting requests to run together, and whether more of them would not change that.
   *
   * The largest preferred size that the requests reach goes first. Once the oldest has waited the delay, and where no
   * preferred size is reached, it is everything that fits.
   */
  #nextBatch(): { count: number; items: number; final: boolean } {
    const all = this.#queuedItems + this.#runningItems;
    const share = this.#eager
      ? shareOf(all, this.#instances, this.maxBatchSize)
      : this.maxBatchSize;
    let items = 0;
    let count = 0;
    let preferredCount = 0;
    let closed = false;
    const first = this.#queue[0]!;
    for (const waiting of this.#queue) {
      const together = items + waiting.items;
      if (together > this.maxBatchSize || waiting.shapeKey !== first.shapeKey) {
        closed = true;
        break;
      }
      if (count > 0 && together > share) break;
      items = together;
      count += 1;
      if (this.#preferred.has(items)) preferredCount = count;
      if (items >= this.maxBatchSize) break;
    }
    const late = performance.now() - first.enqueuedAt >= this.#delayMs;
    if (preferredCount > 0 && !late && !this.#eager && !this.#draining) {
      return { count: preferredCount, items, final: true };
    }
    const enough = this.#eager ? this.maxBatchSize : this.#largestPreferred;
    return { count, items, final: closed || items >= enough };
  }

  async #execute(batch: readonly Waiting[]): Promise<void> {
    this.#running.add(batch);
    const startedAt = performance.now();
    let batchSize = 0;
    for (const waiting of batch) {
      waiting.release();
      batchSize += waiting.items;
    }
    this.#queuedItems -= batchSize;
    this.#runningItems += batchSize;

    let outputs: readonly Tensor[] = [];
    let inferUs = 0;
    let inputUs = 0;
    let failure: EngineError | undefined;
    try {
      const [first] = batch;
      const inputs =
        batch.length === 1 && first?.taken
          ? first.inputs
          : this.#session.inputs.map((_, index) =>
              concatenate(
                batch.map((waiting) => waiting.inputs[index]!),
                batchSize,
              ),
            );
      inputUs = (performance.now() - startedAt) * 1000;
      ({ outputs, inferUs } = await this.#session.run(inputs));
      this.#learn(inferUs / 1000 / batchSize);
      checkOutputs(outputs, batchSize);
    } catch (error) {
      failure =
        error instanceof EngineError
          ? error
          : new EngineError("failed", messageOf(error), { cause: error });
    }

    const totalUs = (performance.now() - startedAt) * 1000;
    const timings = batch.map(
      (waiting): RequestTiming => ({
        queueUs: (startedAt - waiting.enqueuedAt) * 1000,
        computeInputUs: inputUs,
        computeInferUs: inferUs,
        computeOutputUs: Math.max(0, totalUs - inputUs - inferUs),
      }),
    );
    try {
      this.#onExecution?.({
        batchSize,
        requests: batch.map(({ items }, index) => ({ items, timing: timings[index]! })),
        inferUs,
        error: failure,
      });
    } finally {
      let first = 0;
      for (const [index, waiting] of batch.entries()) {
        if (failure === undefined) {
          const part = outputs.map((output) => slice(output, first, waiting.items));
          waiting.resolve({ outputs: part, timing: timings[index]!, batchSize });
        } else {
          waiting.reject(failure);
        }
        first += waiting.items;
      }
      this.#running.delete(batch);
      this.#runningItems -= batchSize;
      this.#dispatch();
      this.#reportIdle();
    }
  }

  #learn(itemMs: number): void {
    this.#itemMs = Number.isFinite(this.#itemMs)
      ? this.#itemMs + (itemMs - this.#itemMs) * learnedShare
      : itemMs;
  }

  #reportIdle(): void {
    if (!this.#draining || this.pendingRequests > 0) return;
    for (const resolve of this.#idle.splice(0)) resolve();
  }
}

/** @throws {EngineError} `invalid`, in the order of the model's inputs. */
function checkInputs(
  inputs: readonly Tensor[],
  specs: readonly TensorSpec[],
  maxBatchSize: number,
): { items: number; shapeKey: string } {
  const invalid = (message: string) => new EngineError("invalid", message);
  if (inputs.length !== specs.length) {
    throw invalid(`expected ${specs.length} inputs, got ${inputs.length}`);
  }
  const items = inputs[0]?.shape[0] ?? 0;
  if (!Number.isInteger(items) || items < 1 || items > maxBatchSize) {
    throw invalid(`batch size must be 1 to ${maxBatchSize}, got ${items}`);
  }
  for (const [index, spec] of specs.entries()) {
    const input = inputs[index]!;
    if (input.name !== spec.name) {
      throw invalid(`input ${index} must be '${spec.name}', got '${input.name}'`);
    }
    if (input.dataType !== spec.dataType) {
      throw invalid(`input '${spec.name}' must be ${spec.dataType}, got ${input.dataType}`);
    }
    const dims = input.shape.slice(1);
    const fits =
      input.shape[0] === items &&
      dims.length === spec.dims.length &&
      dims.every((dim, axis) =>
        spec.dims[axis] === -1 ? Number.isInteger(dim) && dim >= 0 : dim === spec.dims[axis],
      );
    if (!fits) {
      throw invalid(
        `input '${spec.name}' must be [${[items, ...spec.dims].join(", ")}], got [${input.shape.join(", ")}]`,
      );
    }
    const values = valueCount(input);
    if (values !== elementCount(input.shape)) {
      throw invalid(
        `input '${spec.name}' must have ${elementCount(input.shape)} values, got ${values}`,
      );
    }
  }
  return { items, shapeKey: inputs.map(({ shape }) => shape.slice(1).join("x")).join(";") };
}

function valueCount({ dataType, data }: Tensor): number {
  return data instanceof Uint8Array
    ? data.byteLength / (bytesPerElement[dataType] ?? 1)
    : data.length;
}

function checkOutputs(outputs: readonly Tensor[], batchSize: number): void {
  for (const { name, shape } of outputs) {
    if (shape[0] !== batchSize) {
      throw new EngineError(
        "failed",
        `output '${name}' must have ${batchSize} rows, got [${shape.join(", ")}]`,
      );
    }
  }
}

/** One tensor of all rows, in new memory: the session takes it over, and the callers keep theirs. */
function concatenate(parts: readonly Tensor[], batchSize: number): Tensor {
  const { name, shape } = parts[0]!;
  const head = { name, shape: [batchSize, ...shape.slice(1)] };
  const first = parts[0]!;
  if (first.dataType === "FP32") {
    const data = new Float32Array(elementCount(head.shape));
    let offset = 0;
    for (const part of parts as readonly (typeof first)[]) {
      data.set(part.data, offset);
      offset += part.data.length;
    }
    return { ...head, dataType: "FP32", data };
  }
  if (first.dataType === "BYTES") {
    const data = (parts as readonly (typeof first)[]).flatMap((part) => [...part.data]);
    return { ...head, dataType: "BYTES", data };
  }
  const pieces = (parts as readonly (typeof first)[]).map((part) => part.data);
  const data = new Uint8Array(pieces.reduce((total, piece) => total + piece.byteLength, 0));
  let offset = 0;
  for (const piece of pieces) {
    data.set(piece, offset);
    offset += piece.byteLength;
  }
  return { ...head, dataType: first.dataType, data };
}

/** Rows `first` to `first + count` of a tensor: a view, not a copy. */
function slice(tensor: Tensor, first: number, count: number): Tensor {
  const rows = tensor.shape[0]!;
  const head = { name: tensor.name, shape: [count, ...tensor.shape.slice(1)] };
  const cut = (length: number) => [(first * length) / rows, ((first + count) * length) / rows];
  if (tensor.dataType === "FP32") {
    return {
      ...head,
      dataType: "FP32",
      data: tensor.data.subarray(...cut(tensor.data.length)),
    };
  }
  if (tensor.dataType === "BYTES") {
    return { ...head, dataType: "BYTES", data: tensor.data.slice(...cut(tensor.data.length)) };
  }
  return {
    ...head,
    dataType: tensor.dataType,
    data: tensor.data.subarray(...cut(tensor.data.length)),
  };
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
