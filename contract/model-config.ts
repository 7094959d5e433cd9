import type { ImageTower } from "./model-spec.ts";
import { daliParameters, maxImagePixels, preprocessParameters } from "./preprocess-parameters.ts";
import type { DataType, TensorSpec } from "./tensor.ts";
import {
  type DaliKind,
  daliModels,
  daliQueueDelayMicroseconds,
  isEnsembleKind,
  type ModelKind,
  type TritonModel,
  type TritonSpec,
  tritonModel,
} from "./triton-models.ts";
import { type PrecisionSource, precisionSourceOf } from "./triton-releases.ts";

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
  /** Whether the dynamic batcher may combine requests of different shapes. */
  readonly allow_ragged_batch?: boolean;
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

/** Distribution of a model's execution instances over the GPUs that Triton sees, or on the CPU without GPUs. */
export interface GpuLayout {
  /** Indices inside the container or pod; empty for the CPU. */
  readonly gpus: readonly number[];
  /** @default 1 */
  readonly instancesPerGpu?: number;
}

/** Returns the layout for all GPUs of a container or pod, whose indices inside start at 0 for any GPUs of the host. */
export function gpuLayout(count: number, instancesPerGpu = 1): GpuLayout {
  return { gpus: Array.from({ length: count }, (_, index) => index), instancesPerGpu };
}

/** Name of a deployment's model configurations, `<model>/configs/deployed.pbtxt`, selected with `--model-config-name`. */
export const deployedConfigName = "deployed";

/** Mount path in a Triton container of the volume with TensorRT's engines and timing caches. */
export const engineCacheMount = "/engine-cache";

/** Maximum TensorRT workspace while building and running an engine: 1 GiB. */
export const tensorrtWorkspaceBytes = 1_073_741_824;

/** Optimum batch size of the TensorRT profile, for which kernels are tuned, if the model allows it. */
const tensorrtOptimumBatch = 16;

/** Batch sizes that `verify` and `bench` request, and with which models are warmed up on a GPU. Sizes above the maximum of a model are left out. */
export const benchBatchSizes = [1, 4, 8, 16, 32] as const;

/** Returns {@link benchBatchSizes} up to the maximum batch size of a model, and that size. */
export function batchSizesUpTo(maximum: number): readonly number[] {
  return [...benchBatchSizes.filter((size) => size < maximum), maximum];
}

/** Instance groups of a model whose device depends on the layout; none without one, so that Triton uses all visible GPUs or the CPU. */
function instanceGroups(layout: GpuLayout | undefined): Pick<ModelConfig, "instance_group"> {
  if (layout === undefined) return {};
  const { gpus, instancesPerGpu = 1 } = layout;
  if (gpus.length === 0) return { instance_group: [{ kind: "KIND_CPU", count: 1 }] };
  // `count` applies to each listed GPU
  return { instance_group: [{ kind: "KIND_GPU", count: instancesPerGpu, gpus }] };
}

/** Common fields of all configurations. */
function headOf({ name, platform, maxBatchSize, inputs, outputs }: TritonModel) {
  return {
    name,
    ...(platform === "python" || platform === "dali" ? { backend: platform } : { platform }),
    max_batch_size: maxBatchSize,
    input: inputs.map(tensorOf),
    output: outputs.map(tensorOf),
    version_policy: { latest: { num_versions: 1 } },
  } satisfies ModelConfig;
}

type OnnxKind = Exclude<ModelKind, "preprocess" | "jpeg" | DaliKind>;

function onnxConfig(
  spec: TritonSpec,
  modelKind: OnnxKind,
  layout: GpuLayout | undefined,
  precision: PrecisionSource,
): ModelConfig {
  const model = tritonModel(spec, modelKind);
  const onGpu = layout?.gpus.length !== 0;
  const withTensorrt = onGpu && (modelKind === "trt" || modelKind === "text-trt");
  const { preferredBatchSizes: preferred, maxQueueDelayMicroseconds } = model;
  return {
    ...headOf(model),
    dynamic_batching: {
      ...(preferred.length > 0 && { preferred_batch_size: preferred }),
      max_queue_delay_microseconds: maxQueueDelayMicroseconds,
    },
    ...instanceGroups(layout),
    ...(withTensorrt && {
      ...(precision !== "precision-mode" && { default_model_filename: tensorrtFile }),
      optimization: {
        execution_accelerators: { gpu_execution_accelerator: [tensorrtOf(model, precision)] },
      },
    }),
    // kernels are compiled and tuned at the first request of each batch size: done before the model is ready
    ...(onGpu && {
      model_warmup: batchSizesUpTo(model.maxBatchSize).map((batch) => warmupOf(model, batch)),
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

/**
 * File of a tower in half precision with FP32 inputs and outputs, beside its `model.onnx`, for TensorRT that takes the precision from the
 * graph. `clipstack model convert --precision fp16 --keep-graph` writes it.
 */
export const tensorrtFile = "model.trt-fp16.onnx";

function tensorrtOf(model: TritonModel, precision: PrecisionSource): Accelerator {
  const { name, inputs, maxBatchSize } = model;
  return {
    name: "tensorrt",
    parameters: {
      ...(precision !== "graph" && { precision_mode: "FP16" }),
      max_workspace_size_bytes: String(tensorrtWorkspaceBytes),
      trt_engine_cache_enable: "true",
      trt_engine_cache_path: `${engineCacheMount}/${name}`,
      trt_engine_cache_prefix: `${name}_fp16_b${maxBatchSize}`,
      trt_timing_cache_enable: "true",
      trt_timing_cache_path: `${engineCacheMount}/${name}`,
      trt_profile_min_shapes: tensorrtShapes(inputs, 1),
      trt_profile_opt_shapes: tensorrtShapes(inputs, Math.min(tensorrtOptimumBatch, maxBatchSize)),
      trt_profile_max_shapes: tensorrtShapes(inputs, maxBatchSize),
    },
  };
}

function warmupOf({ inputs }: TritonModel, batch: number): ModelWarmup {
  return {
    name: `batch_${batch}`,
    batch_size: batch,
    inputs: Object.fromEntries(
      inputs.map(({ name, dataType, dims }) => [
        name,
        {
          data_type: tritonType(dataType),
          dims,
          // random integers are not token ids
          ...(dataType === "FP32" || dataType === "UINT8"
            ? { random_data: true }
            : { zero_data: true }),
        },
      ]),
    ),
  };
}

/** Returns Triton's name of a data type: `TYPE_FP32` for `FP32`, `TYPE_STRING` for `BYTES`. */
export function tritonType(dataType: DataType): TritonType {
  return dataType === "BYTES" ? "TYPE_STRING" : `TYPE_${dataType}`;
}

function stringParameters(values: Readonly<Record<string, string>>): ModelConfig["parameters"] {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, { string_value: value }]),
  );
}

/** Number of processes for preprocessing. Each handles one request at a time and processes the images of the request in parallel. */
const preprocessInstances = 2;

/** Configuration of the preprocessing, which runs on the CPU everywhere. */
function preprocessConfig(spec: TritonSpec, { input }: ImageTower): ModelConfig {
  return {
    ...headOf(tritonModel(spec, "preprocess")),
    instance_group: [{ kind: "KIND_CPU", count: preprocessInstances }],
    parameters: stringParameters({ ...preprocessParameters(input, maxImagePixels) }),
  };
}

/** Serialized DALI pipelines in the version folder, by the device of the decoder and of the resize. */
export const daliFiles = { gpu: "model.dali", cpu: "model.cpu.dali" } as const;

/** CPU threads of a DALI pipeline; the GPU's decoder uses them too. */
export const daliThreads = 4;

/** Configuration of the DALI pipeline, which decodes on the GPU if Triton has one. */
function daliConfig(
  spec: TritonSpec,
  { input }: ImageTower,
  layout: GpuLayout | undefined,
): ModelConfig {
  const head = headOf(tritonModel(spec, "dali-preprocess"));
  return {
    ...head,
    // files have different lengths
    input: head.input.map((tensor) => ({ ...tensor, allow_ragged_batch: true })),
    dynamic_batching: { max_queue_delay_microseconds: daliQueueDelayMicroseconds },
    ...instanceGroups(layout && { gpus: layout.gpus }),
    default_model_filename: daliFiles[layout?.gpus.length === 0 ? "cpu" : "gpu"],
    parameters: stringParameters({
      num_threads: String(daliThreads),
      ...daliParameters(input, maxImagePixels),
    }),
  };
}

/** Steps of each ensemble: preprocessing, then the model that accepts its result. */
const ensembleSteps = {
  jpeg: ["preprocess", "u8"],
  dali: ["dali-preprocess", daliModels.dali],
  "dali-trt": ["dali-preprocess", daliModels["dali-trt"]],
} as const;

/** Configuration of an ensemble: preprocessing, then the model that accepts its result. The configurations of the two steps select the devices. */
function ensembleConfig(spec: TritonSpec, modelKind: keyof typeof ensembleSteps): ModelConfig {
  const [ensemble, preprocess, pixels] = ([modelKind, ...ensembleSteps[modelKind]] as const).map(
    (each) => tritonModel(spec, each),
  ) as [TritonModel, TritonModel, TritonModel];
  const [image] = preprocess.outputs;
  return {
    ...headOf(ensemble),
    ensemble_scheduling: {
      step: [
        {
          model_name: preprocess.name,
          model_version: -1,
          input_map: { [preprocess.inputs[0].name]: ensemble.inputs[0].name },
          output_map: { [image.name]: image.name },
        },
        {
          model_name: pixels.name,
          model_version: -1,
          input_map: { [pixels.inputs[0].name]: image.name },
          output_map: { [pixels.outputs[0].name]: ensemble.outputs[0].name },
        },
      ],
    },
  };
}

/**
 * Returns the configuration of a model of the repository.
 *
 * @param layout - Devices of its instances. Defaults to `config.pbtxt`, which names no device.
 * @param precision - Precision source of the TensorRT that runs it.
 * @throws {Error} if the spec lacks the model kind's tower
 */
export function modelConfig(
  spec: TritonSpec,
  modelKind: ModelKind,
  layout?: GpuLayout,
  precision: PrecisionSource = precisionSourceOf(),
): ModelConfig {
  const { image } = spec.towers;
  if (modelKind === "preprocess" && image !== undefined) return preprocessConfig(spec, image);
  if (modelKind === "dali-preprocess" && image !== undefined)
    return daliConfig(spec, image, layout);
  if (isEnsembleKind(modelKind)) return ensembleConfig(spec, modelKind);
  return onnxConfig(spec, modelKind as OnnxKind, layout, precision);
}

/** Default number of instances of the ONNX Runtime backend. */
const defaultInstances = { gpu: 1, cpu: 2 } as const;

/**
 * Returns the number of instances of a model: Σ count × listed GPUs.
 *
 * @param gpusOfHost - Number of GPUs visible to Triton; a group without a list uses all of them.
 */
export function executionInstances(config: ModelConfig, gpusOfHost: number): number {
  const byDefault: InstanceGroup = { kind: gpusOfHost > 0 ? "KIND_GPU" : "KIND_CPU" };
  const groups = config.instance_group?.length ? config.instance_group : [byDefault];
  return groups.reduce(
    (sum, { kind, count, gpus = [] }) =>
      kind === "KIND_GPU"
        ? sum + (count || defaultInstances.gpu) * (gpus.length || gpusOfHost)
        : sum + (count || defaultInstances.cpu),
    0,
  );
}
