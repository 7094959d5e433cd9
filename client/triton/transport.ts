import type { Tensor, TensorSpec } from "../../contract/tensor.ts";

export type TritonErrorCode =
  /** No answer within the deadline. */
  | "timeout"
  /** Not reachable, not ready, or too busy to take the request. */
  | "unavailable"
  /** The server refused the request, or the model failed on it: trying again will not help. */
  | "rejected"
  /** The answer is not what the protocol allows. */
  | "protocol"
  /** The caller's own `signal` ended the call. */
  | "cancelled";

/** The only error that a {@link Transport} throws. Branch on `code`, not on the text. */
export class TritonError extends Error {
  override readonly name = "TritonError";

  constructor(
    readonly code: TritonErrorCode,
    /** The text without the code, with which `message` begins. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(`[${code}] ${problem}`, options);
  }
}

export interface CallOptions {
  /** Deadline of the call, time in Triton's queue included. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

export interface InferCallOptions extends CallOptions {
  readonly requestId?: string;
  /** Names of the outputs to return; all of them without it. */
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
  /** `dims` here include the batch dimension, as the protocol gives them. */
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
}

/** Cumulative counts and times of one model, since it was loaded. Times in nanoseconds, as the protocol has them. */
export interface ModelStatistics {
  readonly name: string;
  readonly version: string;
  /** Inferences: the sum of the batch sizes of all requests. */
  readonly inferenceCount: number;
  /** Executions of the model: after batching. */
  readonly executionCount: number;
  readonly success: { readonly count: number; readonly ns: number };
  readonly fail: { readonly count: number; readonly ns: number };
  readonly queue: { readonly count: number; readonly ns: number };
  readonly computeInput: { readonly count: number; readonly ns: number };
  readonly computeInfer: { readonly count: number; readonly ns: number };
  readonly computeOutput: { readonly count: number; readonly ns: number };
  readonly batches: readonly { readonly batchSize: number; readonly executions: number }[];
}

/** Carries Open Inference Protocol v2 calls to Triton. Implemented over HTTP and gRPC. */
export interface Transport {
  /** `http://host:port` or `host:port`, for messages. */
  readonly target: string;
  /** Run `model` on `inputs`; throws {@link TritonError}, and nothing else. */
  infer(
    model: string,
    inputs: readonly Tensor[],
    options: InferCallOptions,
  ): Promise<readonly Tensor[]>;
  /** Whether the server answers at all. False, not an error, when it cannot be reached. */
  live(options: CallOptions): Promise<boolean>;
  /** Whether `model` (the server, without it) is loaded and takes requests. False, not an error, while it loads. */
  ready(model: string | undefined, options: CallOptions): Promise<boolean>;
  serverMetadata(options: CallOptions): Promise<ServerMetadata>;
  modelMetadata(model: string, options: CallOptions): Promise<ModelMetadata>;
  /** The model's configuration, as Triton gives it: `ModelConfig` of model_config.proto, in JSON. */
  modelConfig(model: string, options: CallOptions): Promise<Readonly<Record<string, unknown>>>;
  statistics(model: string, options: CallOptions): Promise<ModelStatistics>;
  /** Closes pooled connections: an idle one keeps a stopping Triton waiting for its whole exit timeout. */
  close(): Promise<void>;
}
