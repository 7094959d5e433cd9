import type { Execution } from "../inference/session/batcher.ts";
import type { RequestTiming } from "../inference/session/types.ts";

/** Triton's reasons of `nv_inference_request_failure`. */
export const failureReasons = ["REJECTED", "CANCELED", "BACKEND", "OTHER"] as const;
export type FailureReason = (typeof failureReasons)[number];

/** Count and total duration. */
export interface DurationCount {
  readonly count: number;
  readonly ns: number;
}

export interface BatchCount {
  readonly batchSize: number;
  readonly computeInput: DurationCount;
  readonly computeInfer: DurationCount;
  readonly computeOutput: DurationCount;
}

/** Statistics of one model since it was loaded, counted as in Triton. */
export class ModelCounters {
  /** Time of the last request, in milliseconds since 1970; 0 before the first. */
  lastInferenceMs = 0;
  /** Sum of the batch sizes of all successful requests. */
  inferenceCount = 0;
  /** Number of successful executions. */
  executionCount = 0;
  readonly failures: Record<FailureReason, number> = {
    REJECTED: 0,
    CANCELED: 0,
    BACKEND: 0,
    OTHER: 0,
  };
  /** Successful requests, with their total time in the server. */
  success = zero;
  fail = zero;
  queue = zero;
  computeInput = zero;
  computeInfer = zero;
  computeOutput = zero;
  readonly #batches = new Map<number, Omit<BatchCount, "batchSize">>();

  /** In ascending order of batch size. */
  get batches(): readonly BatchCount[] {
    return [...this.#batches]
      .sort(([left], [right]) => left - right)
      .map(([batchSize, counts]) => ({ batchSize, ...counts }));
  }

  requestSucceeded(items: number, timing: RequestTiming, totalUs: number): void {
    this.inferenceCount += items;
    this.success = plus(this.success, totalUs);
    this.queue = plus(this.queue, timing.queueUs);
    this.computeInput = plus(this.computeInput, timing.computeInputUs);
    this.computeInfer = plus(this.computeInfer, timing.computeInferUs);
    this.computeOutput = plus(this.computeOutput, timing.computeOutputUs);
  }

  requestFailed(reason: FailureReason, totalUs: number): void {
    this.failures[reason] += 1;
    this.fail = plus(this.fail, totalUs);
  }

  executed({ batchSize, requests, inferUs, error }: Execution): void {
    if (error !== undefined) return;
    this.executionCount += 1;
    const before = this.#batches.get(batchSize);
    const timing = requests[0]?.timing;
    this.#batches.set(batchSize, {
      computeInput: plus(before?.computeInput ?? zero, timing?.computeInputUs ?? 0),
      computeInfer: plus(before?.computeInfer ?? zero, inferUs),
      computeOutput: plus(before?.computeOutput ?? zero, timing?.computeOutputUs ?? 0),
    });
  }
}

const zero: DurationCount = { count: 0, ns: 0 };

function plus({ count, ns }: DurationCount, us: number): DurationCount {
  return { count: count + 1, ns: ns + Math.round(us * 1000) };
}
