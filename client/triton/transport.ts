import type { Tensor, TensorSpec } from "../../contract/tensor.ts";

/** Meaning of each `code`. Rendered to docs/errors.md. */
export const tritonErrors = {
  timeout: "No response within the deadline.",
  unavailable: "The server is unreachable, not ready or overloaded.",
  rejected: "The server rejected the request or the model failed; a retry will not succeed.",
  protocol: "The response violates the protocol.",
  cancelled: "The caller's `signal` was aborted.",
} as const;
export type TritonErrorCode = keyof typeof tritonErrors;

/** The only error that a {@link Transport} throws. Branch on `code`, not on the message. */
export class TritonError extends Error {
  override readonly name = "TritonError";

  constructor(
    readonly code: TritonErrorCode,
    /** `message` without its `[code]` prefix. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(`[${code}] ${problem}`, options);
  }
}

export interface CallOptions {
  /** Deadline of the call in milliseconds, including time in Triton's queue. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface InferCallOptions extends CallOptions {
  readonly requestId?: string;
  /**
   * Names of the outputs to return.
   *
   * @default - all outputs
   */
  readonly outputs?: readonly string[];
}

export interface ServerMetadata {
  readonly name: string;
  readonly version: string;
  readonly extensions: readonly string[];
}

export interface ModelMetadata {
  readonly name: string;
  readonly versions: readonly string[];
  readonly platform: string;
  /** `dims` include the batch dimension, as in the protocol. */
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
}

/** Cumulative counts and times in nanoseconds of one model since it was loaded. */
export interface ModelStatistics {
  readonly name: string;
  readonly version: string;
  /** Sum of the batch sizes of all requests. */
  readonly inferenceCount: number;
  /** Number of executions of the model, after batching. */
  readonly executionCount: number;
  readonly success: { readonly count: number; readonly ns: number };
  readonly fail: { readonly count: number; readonly ns: number };
  readonly queue: { readonly count: number; readonly ns: number };
  readonly computeInput: { readonly count: number; readonly ns: number };
  readonly computeInfer: { readonly count: number; readonly ns: number };
  readonly computeOutput: { readonly count: number; readonly ns: number };
  readonly batches: readonly { readonly batchSize: number; readonly executions: number }[];
}

/** Sends Open Inference Protocol v2 calls to Triton. Implemented over HTTP and gRPC. */
export interface Transport {
  /** Address for messages: `http://host:port`, or `host:port` for gRPC. */
  readonly target: string;
  /**
   * Runs `model` on `inputs`.
   *
   * @throws {TritonError} and no other error
   */
  infer(
    model: string,
    inputs: readonly Tensor[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]>;
  /** Returns whether the server is live; false, not an error, if it is unreachable. */
  live(options: CallOptions): Promise<boolean>;
  /** Returns whether `model`, or the server if undefined, is ready for requests; false, not an error, while it loads. */
  ready(model: string | undefined, options: CallOptions): Promise<boolean>;
  serverMetadata(options: CallOptions): Promise<ServerMetadata>;
  modelMetadata(model: string, options: CallOptions): Promise<ModelMetadata>;
  /** Returns the model's configuration: `ModelConfig` of model_config.proto as JSON. */
  modelConfig(model: string, options: CallOptions): Promise<Readonly<Record<string, unknown>>>;
  statistics(model: string, options: CallOptions): Promise<ModelStatistics>;
  /** Closes all connections. An open idle connection delays the exit of Triton until its exit timeout. */
  close(): Promise<void>;
}
