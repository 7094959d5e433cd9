import type { DataType } from "./tensor.ts";

/**
 * Triton's model configuration, as far as clipstack uses it. The field names are those of `model_config.proto`, so one
 * shape is what we write, what a parsed `config.pbtxt` gives, and what `/v2/models/M/config` answers.
 */
export interface ModelConfig {
  readonly name: string;
  readonly platform?: string;
  readonly backend?: string;
  /** 0: the model has no batch dimension. */
  readonly max_batch_size: number;
  readonly input: readonly ModelConfigTensor[];
  readonly output: readonly ModelConfigTensor[];
  readonly version_policy?: VersionPolicy;
  readonly dynamic_batching?: DynamicBatching;
  readonly instance_group?: readonly InstanceGroup[];
  readonly optimization?: Optimization;
  readonly model_warmup?: readonly ModelWarmup[];
  readonly default_model_filename?: string;
  readonly parameters?: Readonly<Record<string, { readonly string_value: string }>>;
}

export interface ModelConfigTensor {
  readonly name: string;
  readonly data_type: TritonType;
  /** Without the batch dimension, when `max_batch_size` is above 0. -1 is any size. */
  readonly dims: readonly number[];
}

/** Triton's name of a data type: `TYPE_FP32`; BYTES is `TYPE_STRING`. */
export type TritonType = `TYPE_${Exclude<DataType, "BYTES">}` | "TYPE_STRING" | "TYPE_BF16";

/** Which of the numbered folders are served. One of the three. */
export interface VersionPolicy {
  readonly latest?: { readonly num_versions: number };
  readonly all?: Readonly<Record<string, never>>;
  readonly specific?: { readonly versions: readonly number[] };
}

export interface DynamicBatching {
  readonly preferred_batch_size?: readonly number[];
  readonly max_queue_delay_microseconds?: number;
  readonly preserve_ordering?: boolean;
  readonly default_queue_policy?: QueuePolicy;
}

export interface QueuePolicy {
  readonly timeout_action?: "REJECT" | "DELAY";
  /** 0: none. */
  readonly default_timeout_microseconds?: number;
  readonly allow_timeout_override?: boolean;
  /** 0: any number. */
  readonly max_queue_size?: number;
}

export interface InstanceGroup {
  readonly name?: string;
  readonly kind: "KIND_AUTO" | "KIND_GPU" | "KIND_CPU" | "KIND_MODEL";
  /** On *each* of `gpus`. Without it Triton's default. */
  readonly count?: number;
  /** Indices. None given, with KIND_GPU: every GPU that Triton sees. */
  readonly gpus?: readonly number[];
}

export interface Optimization {
  readonly execution_accelerators?: {
    readonly gpu_execution_accelerator?: readonly Accelerator[];
    readonly cpu_execution_accelerator?: readonly Accelerator[];
  };
  readonly cuda?: Readonly<Record<string, unknown>>;
  readonly eager_batching?: boolean;
  readonly gather_kernel_buffer_threshold?: number;
}

export interface Accelerator {
  readonly name: string;
  readonly parameters?: Readonly<Record<string, string>>;
}

export interface ModelWarmup {
  readonly name: string;
  readonly batch_size: number;
  readonly inputs: Readonly<Record<string, WarmupInput>>;
  readonly count?: number;
}

export interface WarmupInput {
  readonly data_type: TritonType;
  readonly dims: readonly number[];
  readonly zero_data?: boolean;
  readonly random_data?: boolean;
}
