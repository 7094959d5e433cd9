import type { Tensor, TensorSpec } from "../../contract/tensor.ts";

/** Where the time of one request went, in microseconds. Triton's four parts. */
export interface RequestTiming {
  readonly queueUs: number;
  readonly computeInputUs: number;
  readonly computeInferUs: number;
  readonly computeOutputUs: number;
}

/** A loaded model. `run` never blocks the event loop: the runtime works in a thread of its own. */
export interface ModelSession {
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  /**
   * Runs that it does side by side; more of them wait.
   *
   * @default 1
   */
  readonly instances?: number;
  /**
   * Run the model once.
   *
   * @param inputs - One tensor for each input, the batch as first dimension, the same size in all. They are taken
   *   over: their memory moves to the runtime's thread, and the caller's arrays are empty afterwards.
   * @returns One tensor for each output, in the model's order, and the time inside the runtime.
   * @throws {InferenceError} `failed`
   */
  run(inputs: readonly Tensor[]): Promise<RunResult>;
  /** Frees the model. Runs in flight are answered first. */
  close(): Promise<void>;
}

export interface RunResult {
  readonly outputs: readonly Tensor[];
  readonly inferUs: number;
}

export interface InferOptions {
  /** Drops the request while it waits; a run that has begun is not stopped. */
  readonly signal?: AbortSignal;
  /** Drops the request when it has waited this long. */
  readonly queueTimeoutMs?: number;
  /**
   * What becomes of the inputs. `taken`: the caller needs them no more, so a request that runs alone is not copied, and its
   * arrays are empty afterwards.
   *
   * @default "copied"
   */
  readonly inputs?: "copied" | "taken";
}

export interface InferResult {
  readonly outputs: readonly Tensor[];
  readonly timing: RequestTiming;
  /** Images in the execution that this request was part of. */
  readonly batchSize: number;
}

export type InferenceErrorCode =
  /** Waited longer than it may, or the caller went away. */
  | "expired"
  | "draining"
  /** The runtime failed. */
  | "failed"
  /** The model file is missing or cannot be loaded. */
  | "model";

/** The only error that the engine throws. Branch on `code`, not on the text. */
export class InferenceError extends Error {
  override readonly name = "InferenceError";

  constructor(
    readonly code: InferenceErrorCode,
    /** The text without the code, with which `message` begins. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(`[${code}] ${problem}`, options);
  }
}
