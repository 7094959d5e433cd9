import {
  type ModelName,
  type ModelSignature,
  openclipPreprocess,
  openclipVitB32,
  openclipVitB32Jpeg,
  openclipVitB32Trt,
  openclipVitB32U8,
} from "./model-signature.ts";
import { serverEnv } from "./server-env.ts";
import type { DataType, TensorSpec } from "./tensor.ts";

/**
 * Fields of Triton's model configuration that clipstack uses, with the names of `model_config.proto`. The same type describes rendered
 * configurations, parsed `config.pbtxt` files and responses of `/v2/models/M/config`.
 */
export interface ModelConfig {
  readonly name: string;
  readonly platform?: string;
  readonly backend?: string;
  /** 0 if the model has no batch dimension. */
  readonly max_batch_size: number;
  readonly input: readonly ModelConfigTensor[];
  readonly output: readonly ModelConfigTensor[];
  readonly version_policy?: VersionPolicy;
  readonly dynamic_batching?: DynamicBatching;
  readonly instance_group?: readonly InstanceGroup[];
  readonly optimization?: Optimization;
  readonly model_warmup?: readonly ModelWarmup[];
  readonly ensemble_scheduling?: EnsembleScheduling;
  readonly default_model_filename?: string;
  readonly parameters?: Readonly<Record<string, { readonly string_value: string }>>;
}

export interface ModelConfigTensor {
  readonly name: string;
  readonly data_type: TritonType;
  /** Dimensions, without the batch dimension if `max_batch_size` is above 0. -1 is any size. */
  readonly dims: readonly number[];
}

/** Triton's name of a data type: `TYPE_FP32`; BYTES is `TYPE_STRING`. */
export type TritonType = `TYPE_${Exclude<DataType, "BYTES">}` | "TYPE_STRING";

/** Served versions. Exactly one member is set. */
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
  /** 0 for no timeout. */
  readonly default_timeout_microseconds?: number;
  readonly allow_timeout_override?: boolean;
  /** 0 for no limit. */
  readonly max_queue_size?: number;
}

export interface InstanceGroup {
  readonly name?: string;
  readonly kind: "KIND_AUTO" | "KIND_GPU" | "KIND_CPU" | "KIND_MODEL";
  /**
   * Instances per GPU of `gpus`.
   *
   * @default - Triton's default
   */
  readonly count?: number;
  /**
   * GPU indices.
   *
   * @default - with KIND_GPU, all GPUs visible to Triton
   */
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
  /** @default 1 */
  readonly count?: number;
}

/** Maximum warm-up runs of a model over all samples. A model is not ready and cannot be unloaded until they have ended. */
export const maxWarmupRuns = 100;

/** Returns the warm-up runs over all samples; a sample without `count` runs once. */
export function warmupRuns(samples: readonly ModelWarmup[]): number {
  return samples.reduce((sum, { count }) => sum + (count || 1), 0);
}

export interface WarmupInput {
  readonly data_type: TritonType;
  readonly dims: readonly number[];
  readonly zero_data?: boolean;
  readonly random_data?: boolean;
}

/** Steps of an ensemble: models that run in sequence, connected by named tensors. */
export interface EnsembleScheduling {
  readonly step: readonly EnsembleStep[];
}

export interface EnsembleStep {
  readonly model_name: string;
  /** -1 for the latest version. */
  readonly model_version: number;
  /** Tensor of the ensemble for each input of the model. */
  readonly input_map: Readonly<Record<string, string>>;
  /** Tensor of the ensemble for each output of the model. */
  readonly output_map: Readonly<Record<string, string>>;
}

/** Configuration variants, `model_repository/<model>/configs/<variant>.pbtxt`, selected with `--model-config-name`. */
export const modelVariants = ["single-gpu", "multi-gpu-4x", "cpu"] as const;
export type ModelVariant = (typeof modelVariants)[number];

/** Mount path in a Triton container of the volume with TensorRT's engines and timing caches. */
export const engineCacheMount = "/engine-cache";

/** Maximum TensorRT workspace while building and running an engine: 1 GiB. */
export const tensorrtWorkspaceBytes = 1_073_741_824;

/** Optimum batch size of the TensorRT profile, for which kernels are tuned; every size from 1 to the maximum works. */
const tensorrtOptimumBatch = 16;

/** Batch sizes of requests by `verify` and the bench, and of the warm-up on a GPU. */
export const benchBatchSizes = [1, 4, 8, 16, 32] as const;

const instanceGroups: Readonly<Record<ModelVariant, readonly InstanceGroup[]>> = {
  "single-gpu": [{ kind: "KIND_GPU", count: 1, gpus: [0] }],
  // `count` applies to each listed GPU: four instances
  "multi-gpu-4x": [{ kind: "KIND_GPU", count: 1, gpus: [0, 1, 2, 3] }],
  cpu: [{ kind: "KIND_CPU", count: 1 }],
};

/** Common fields of all configurations. */
function headOf(signature: ModelSignature) {
  return {
    name: signature.name,
    ...(signature.platform === "python"
      ? { backend: signature.platform }
      : { platform: signature.platform }),
    max_batch_size: signature.maxBatchSize,
    input: signature.inputs.map(tensorOf),
    output: signature.outputs.map(tensorOf),
    version_policy: { latest: { num_versions: 1 } },
  } satisfies ModelConfig;
}

/**
 * Returns the configuration of an ONNX model.
 *
 * @param variant - `default` is `config.pbtxt`, which names no device, so that Triton uses all visible GPUs or the CPU.
 */
function configOf(signature: ModelSignature, variant: ModelVariant | "default"): ModelConfig {
  const onGpu = variant !== "cpu";
  const withTensorrt = onGpu && signature.name === openclipVitB32Trt.name;
  return {
    ...headOf(signature),
    dynamic_batching: {
      preferred_batch_size: signature.preferredBatchSizes,
      max_queue_delay_microseconds: signature.maxQueueDelayMicroseconds,
    },
    ...(variant !== "default" && { instance_group: instanceGroups[variant] }),
    ...(withTensorrt && {
      optimization: {
        execution_accelerators: { gpu_execution_accelerator: [tensorrtOf(signature)] },
      },
    }),
    // kernels are compiled and tuned at the first request of each batch size: done before the model is ready
    ...(onGpu && {
      model_warmup: benchBatchSizes.map((batch) => warmupOf(signature, batch)),
    }),
  };
}

function tensorOf({ name, dataType, dims }: TensorSpec): ModelConfigTensor {
  return { name, data_type: tritonType(dataType), dims };
}

/** Returns the input shapes for a batch size in the format of the TensorRT execution provider. */
export function tensorrtShapes(
  inputs: readonly Pick<TensorSpec, "name" | "dims">[],
  batch: number,
): string {
  return inputs.map(({ name, dims }) => `${name}:${[batch, ...dims].join("x")}`).join(",");
}

function tensorrtOf(signature: ModelSignature): Accelerator {
  return {
    name: "tensorrt",
    parameters: {
      precision_mode: "FP16",
      max_workspace_size_bytes: String(tensorrtWorkspaceBytes),
      trt_engine_cache_enable: "true",
      trt_engine_cache_path: `${engineCacheMount}/${signature.name}`,
      trt_engine_cache_prefix: `${signature.name}_fp16_b${signature.maxBatchSize}`,
      trt_timing_cache_enable: "true",
      trt_timing_cache_path: `${engineCacheMount}/${signature.name}`,
      trt_profile_min_shapes: tensorrtShapes(signature.inputs, 1),
      trt_profile_opt_shapes: tensorrtShapes(signature.inputs, tensorrtOptimumBatch),
      trt_profile_max_shapes: tensorrtShapes(signature.inputs, signature.maxBatchSize),
    },
  };
}

function warmupOf({ inputs }: ModelSignature, batch: number): ModelWarmup {
  return {
    name: `batch_${batch}`,
    batch_size: batch,
    inputs: Object.fromEntries(
      inputs.map(({ name, dataType, dims }) => [
        name,
        { data_type: tritonType(dataType), dims, random_data: true },
      ]),
    ),
  };
}

/** Returns Triton's name of a data type: `TYPE_FP32` for `FP32`, `TYPE_STRING` for `BYTES`. */
export function tritonType(dataType: DataType): TritonType {
  return dataType === "BYTES" ? "TYPE_STRING" : `TYPE_${dataType}`;
}

/** Configurations of one model, by variant; `default` is its `config.pbtxt`. */
export type ModelConfigs = Readonly<Record<ModelVariant | "default", ModelConfig>>;

function configsOf(signature: ModelSignature): ModelConfigs {
  return {
    default: configOf(signature, "default"),
    "single-gpu": configOf(signature, "single-gpu"),
    "multi-gpu-4x": configOf(signature, "multi-gpu-4x"),
    cpu: configOf(signature, "cpu"),
  };
}

/** Parameter of {@link openclipPreprocess}: maximum image size in pixels. */
export const maxImagePixelsParameter = "max_image_pixels";

/** Processes for preprocessing. Each processes one request at a time, with its images in parallel. */
const preprocessInstances = 2;

/** The same configuration for all variants, because decoding always runs on the CPU. */
const preprocessConfig: ModelConfig = {
  ...headOf(openclipPreprocess),
  instance_group: [{ kind: "KIND_CPU", count: preprocessInstances }],
  parameters: {
    [maxImagePixelsParameter]: {
      string_value: String(serverEnv.shape.MAX_IMAGE_PIXELS.parse(undefined)),
    },
  },
};

/** Preprocessing followed by the model for pixels, whose own configurations select the devices. */
const jpegConfig: ModelConfig = {
  ...headOf(openclipVitB32Jpeg),
  ensemble_scheduling: {
    step: [
      {
        model_name: openclipPreprocess.name,
        model_version: -1,
        input_map: { [openclipPreprocess.inputs[0].name]: openclipVitB32Jpeg.inputs[0].name },
        output_map: { [openclipPreprocess.outputs[0].name]: openclipPreprocess.outputs[0].name },
      },
      {
        model_name: openclipVitB32U8.name,
        model_version: -1,
        input_map: { [openclipVitB32U8.inputs[0].name]: openclipPreprocess.outputs[0].name },
        output_map: { [openclipVitB32U8.outputs[0].name]: openclipVitB32Jpeg.outputs[0].name },
      },
    ],
  },
};

/** Returns one configuration for all variants. */
function sameForAll(config: ModelConfig): ModelConfigs {
  return { default: config, "single-gpu": config, "multi-gpu-4x": config, cpu: config };
}

/** All configurations of `model_repository/`. */
export const modelConfigs: Readonly<Record<ModelName, ModelConfigs>> = {
  [openclipVitB32.name]: configsOf(openclipVitB32),
  [openclipVitB32Trt.name]: configsOf(openclipVitB32Trt),
  [openclipVitB32U8.name]: configsOf(openclipVitB32U8),
  [openclipPreprocess.name]: sameForAll(preprocessConfig),
  [openclipVitB32Jpeg.name]: sameForAll(jpegConfig),
};

/** Default number of instances of the ONNX Runtime backend. */
const defaultInstances = { gpu: 1, cpu: 2 } as const;

/**
 * Returns the number of instances of a model: Σ count × listed GPUs.
 *
 * @param gpusOfHost - Number of GPUs visible to Triton; a group without a list uses all of them.
 */
export function executionInstances(config: ModelConfig, gpusOfHost: number): number {
  const groups = config.instance_group ?? [];
  if (groups.length === 0) {
    return gpusOfHost > 0 ? gpusOfHost * defaultInstances.gpu : defaultInstances.cpu;
  }
  return groups.reduce((sum, { kind, count, gpus = [] }) => {
    if (kind === "KIND_GPU") {
      const listed = gpus.length > 0 ? gpus.length : gpusOfHost;
      return sum + (count || defaultInstances.gpu) * listed;
    }
    return sum + (count || defaultInstances.cpu);
  }, 0);
}

/** Fields with enum values, which are not quoted. */
const enumFields: ReadonlySet<string> = new Set(["data_type", "kind", "timeout_action"]);
/** Map fields: objects here, entries of `key` and `value` in the text. */
const mapFields: ReadonlySet<string> = new Set(["parameters", "inputs", "input_map", "output_map"]);

/** Renders a configuration as `config.pbtxt`, without a heading: one field per line, short lists on one line. */
export function printModelConfig(config: ModelConfig): string {
  return printFields(config, "");
}

function printFields(message: object, indent: string): string {
  return Object.entries(message)
    .flatMap(([name, value]: [string, unknown]) => {
      if (value === undefined) return [];
      const values = mapFields.has(name)
        ? Object.entries(value as object).map(([key, item]) => ({ key, value: item }))
        : [value];
      return values.map((item) => `${indent}${name}${printValue(name, item, indent)}\n`);
    })
    .join("");
}

/** Renders the value of a field, after a colon unless it is a message or a list of messages. */
function printValue(name: string, value: unknown, indent: string): string {
  if (!Array.isArray(value))
    return `${isMessage(value) ? "" : ":"} ${printItem(name, value, indent)}`;
  const items = value.map((item) => printItem(name, item, `${indent}  `));
  if (value.some(isMessage)) {
    return ` [\n${items.map((item) => `${indent}  ${item}`).join(",\n")}\n${indent}]`;
  }
  return `: [${items.join(", ")}]`;
}

function printItem(name: string, value: unknown, indent: string): string {
  if (!isMessage(value)) {
    return typeof value === "string" && !enumFields.has(name)
      ? JSON.stringify(value)
      : String(value);
  }
  const fields = printFields(value, `${indent}  `);
  if (fields === "") return "{ }";
  // entry of a map of strings
  if ("key" in value && !isMessage(value.value)) {
    return `{ ${fields.trim().replace(/\n\s*/, ", ")} }`;
  }
  return `{\n${fields}${indent}}`;
}

function isMessage(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
