import type { Tensor, TensorSpec } from "../../contract/tensor.ts";

/** Duration of the four stages of one request in microseconds, as in Triton's statistics. */
export interface RequestTiming {
  readonly queueUs: number;
  readonly computeInputUs: number;
  readonly computeInferUs: number;
  readonly computeOutputUs: number;
}

/** Input or output of a model file. */
export interface SessionTensor extends TensorSpec {
  /** Size of the first dimension; undefined if it is dynamic. */
  readonly batch?: number | undefined;
}

/** Loaded model. `run` does not block the event loop, because the runtime has its own thread. */
export interface ModelSession {
  readonly inputs: readonly SessionTensor[];
  readonly outputs: readonly SessionTensor[];
  /**
   * Number of concurrent runs; further runs are queued.
   *
   * @default 1
   */
  readonly instances?: number;
  /**
   * Runs the model once.
   *
   * @param inputs - One tensor per input, with the same batch size as first dimension. Their memory is transferred to the runtime's
   *   thread, which leaves the caller's arrays empty.
   * @returns One tensor per output, in the model's order, and the time in the runtime.
   * @throws {InferenceError} `failed`
   */
  run(inputs: readonly Tensor[]): Promise<RunResult>;
  /** Completes outstanding runs and frees the model. */
  close(): Promise<void>;
}

export interface RunResult {
  readonly outputs: readonly Tensor[];
  readonly inferUs: number;
}

export interface InferOptions {
  /** Removes the request from the queue when aborted; a started run continues. */
  readonly signal?: AbortSignal;
  readonly queueTimeoutMs?: number;
  /** Order in the queue, as in {@link WaitOptions}. */
  readonly order?: number | undefined;
  /**
   * `transferred` avoids copying a request that runs alone, and leaves the caller's arrays empty.
   *
   * @default "copied"
   */
  readonly inputs?: "copied" | "transferred";
  /** Passed to `onExecution`. */
  readonly caller?: unknown;
}

export interface InferResult {
  readonly outputs: readonly Tensor[];
  readonly timing: RequestTiming;
  /** Images in the execution that included this request. */
  readonly batchSize: number;
}
