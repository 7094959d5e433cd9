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
  readonly ensemble_scheduling?: EnsembleScheduling;
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
export type TritonType = `TYPE_${Exclude<DataType, "BYTES">}` | "TYPE_STRING";

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
  /** @default 1 */
  readonly count?: number;
}

/** Maximum warm-up runs of a model, all samples together: a model is not ready, and does not unload, before they end. */
export const maxWarmupRuns = 100;

/** Warm-up runs of all samples together; a sample without `count` runs once. */
export function warmupRuns(samples: readonly ModelWarmup[]): number {
  return samples.reduce((sum, { count }) => sum + (count || 1), 0);
}

export interface WarmupInput {
  readonly data_type: TritonType;
  readonly dims: readonly number[];
  readonly zero_data?: boolean;
  readonly random_data?: boolean;
}

/** Of the platform `ensemble`: models that run one after the other, connected by named tensors. */
export interface EnsembleScheduling {
  readonly step: readonly EnsembleStep[];
}

export interface EnsembleStep {
  readonly model_name: string;
  /** -1 is the latest. */
  readonly model_version: number;
  /** Input of the model to the tensor of the ensemble that goes there. */
  readonly input_map: Readonly<Record<string, string>>;
  /** Output of the model to the tensor of the ensemble that it becomes. */
  readonly output_map: Readonly<Record<string, string>>;
}

/** Named configurations: `model_repository/<model>/configs/<variant>.pbtxt`, chosen with `--model-config-name`. */
export const modelVariants = ["single-gpu", "multi-gpu-4x", "cpu"] as const;
export type ModelVariant = (typeof modelVariants)[number];

/** Folder of a Triton container that TensorRT keeps its engines and timings in: a volume that outlives the container. */
export const engineCacheMount = "/engine-cache";

/** Memory that TensorRT may use while it builds and runs an engine: 1 GiB. */
export const tensorrtWorkspaceBytes = 1_073_741_824;

/** `optimum` batch of the TensorRT shape profile: kernels are tuned for it, every size from 1 to the maximum works. */
const tensorrtOptimumBatch = 16;

/** Batch sizes that `verify` and the bench send, and that a model on a GPU has seen before it is ready. */
export const benchBatchSizes = [1, 4, 8, 16, 32] as const;

const instanceGroups: Readonly<Record<ModelVariant, readonly InstanceGroup[]>> = {
  "single-gpu": [{ kind: "KIND_GPU", count: 1, gpus: [0] }],
  // `count` is for each GPU listed: this is four instances
  "multi-gpu-4x": [{ kind: "KIND_GPU", count: 1, gpus: [0, 1, 2, 3] }],
  cpu: [{ kind: "KIND_CPU", count: 1 }],
};

/** What every configuration begins with. */
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
 * Configuration of a model that is an ONNX file.
 *
 * @param variant - `default` is `config.pbtxt`: it names no device, so Triton takes every GPU that it sees, or the CPU.
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
    // A GPU compiles and tunes at the first request of a size: that is done before the model counts as ready.
    ...(onGpu && {
      model_warmup: benchBatchSizes.map((batch) => warmupOf(signature, batch)),
    }),
  };
}

function tensorOf({ name, dataType, dims }: TensorSpec): ModelConfigTensor {
  return { name, data_type: tritonType(dataType), dims };
}

/** Shapes of the inputs in a batch of that size, as the TensorRT execution provider reads them. */
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

/** Triton's name of a data type: `FP32` is `TYPE_FP32`, `BYTES` is `TYPE_STRING`. */
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

/** Parameter of {@link openclipPreprocess}: largest image, in pixels, known from its header. */
export const maxImagePixelsParameter = "max_image_pixels";

/** Processes that preprocess: each takes one request at a time, and its images side by side. */
const preprocessInstances = 2;

/** Decodes on the CPU wherever it runs, so it has one configuration. */
const preprocessConfig: ModelConfig = {
  ...headOf(openclipPreprocess),
  instance_group: [{ kind: "KIND_CPU", count: preprocessInstances }],
  parameters: {
    [maxImagePixelsParameter]: {
      string_value: String(serverEnv.shape.MAX_IMAGE_PIXELS.parse(undefined)),
    },
  },
};

/** Preprocessing, and then the model that takes pixels. Where they run is in their own configurations. */
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

/** A model whose configuration does not depend on the device. */
function sameForAll(config: ModelConfig): ModelConfigs {
  return { default: config, "single-gpu": config, "multi-gpu-4x": config, cpu: config };
}

/** Every configuration of `model_repository/`. */
export const modelConfigs: Readonly<Record<ModelName, ModelConfigs>> = {
  [openclipVitB32.name]: configsOf(openclipVitB32),
  [openclipVitB32Trt.name]: configsOf(openclipVitB32Trt),
  [openclipVitB32U8.name]: configsOf(openclipVitB32U8),
  [openclipPreprocess.name]: sameForAll(preprocessConfig),
  [openclipVitB32Jpeg.name]: sameForAll(jpegConfig),
};

/** Instances that Triton makes where a configuration leaves it to the ONNX Runtime backend. */
const defaultInstances = { gpu: 1, cpu: 2 } as const;

/**
 * How many instances of the model run: Σ count × GPUs listed.
 *
 * @param gpusOfHost - GPUs that Triton sees: a group that lists none is on all of them.
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

/** Fields whose words are names of an enum and not strings. */
const enumFields: ReadonlySet<string> = new Set(["data_type", "kind", "timeout_action"]);
/** Fields that are maps: an object here, entries of `key` and `value` in the text. */
const mapFields: ReadonlySet<string> = new Set(["parameters", "inputs", "input_map", "output_map"]);

/** A configuration as `config.pbtxt`, without a heading: one field a line, short lists on one line. */
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

/** The value of a field, after a colon where it is neither a message nor a list of them. */
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
  // an entry of a map of words
  if ("key" in value && !isMessage(value.value)) {
    return `{ ${fields.trim().replace(/\n\s*/, ", ")} }`;
  }
  return `{\n${fields}${indent}}`;
}

function isMessage(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
