import { computesInFp16, fingerprintOf, parametersOf, preprocessingSha256 } from "./fingerprint.ts";
import {
  type Accelerator,
  type DynamicBatching,
  executionInstances,
  gpuLayout,
  type ModelConfig,
  modelConfig,
  tensorrtShapes,
} from "./model-config.ts";
import { checkModelConfig } from "./model-config-check.ts";
import type { Modality } from "./model-spec.ts";
import { printModelConfig } from "./print-model-config.ts";
import { kindModality, type ModelKind, type TritonSpec } from "./triton-models.ts";
import type { PrecisionSource } from "./triton-releases.ts";

/** Model kinds with a configuration that a deployment may change. */
export const tunableKinds = ["fp32", "trt", "u8", "text", "text-trt"] as const;
export type TunableKind = (typeof tunableKinds)[number];

/** Model of the repository: a spec and one of its model kinds. */
export interface TunableTritonModel {
  readonly spec: TritonSpec;
  readonly modelKind: TunableKind;
}

/** Model kind of each modality for Triton's backends. */
export const backendKinds = {
  onnxruntime: { image: "fp32", text: "text" },
  tensorrt: { image: "trt", text: "text-trt" },
} as const satisfies Readonly<Record<string, Readonly<Record<Modality, TunableKind>>>>;

/** Batch sizes for which TensorRT's kernels can be tuned. */
export const optimumBatchSizes = [8, 16] as const;

/**
 * Settings of a deployment that change a model configuration. On the CPU only the queue delay, the preferred batch sizes and the served
 * versions have an effect.
 */
export interface ModelConfigSettings {
  /**
   * Maximum delay of a request to fill a batch.
   *
   * @default 0
   */
  readonly maxQueueDelayMicroseconds?: number;
  /**
   * Batch sizes that the dynamic batcher prefers, ascending, at most the maximum of the model; with TensorRT only `optimumBatchSize`.
   * Empty: no preference.
   *
   * @default - those of the model
   */
  readonly preferredBatchSizes?: readonly number[];
  /**
   * Execution instances per GPU. Each has its own copy of the model in GPU memory.
   *
   * @default 1
   */
  readonly instancesPerGpu?: number;
  /**
   * Batch size for which TensorRT's kernels are tuned, or the maximum of the model if that is smaller. Every size from 1 to the maximum
   * works. TensorRT only.
   *
   * @default 16
   */
  readonly optimumBatchSize?: (typeof optimumBatchSizes)[number];
  /**
   * Replay of the kernels of a batch as one CUDA graph. TensorRT only: ONNX Runtime's CUDA provider can return the result of an
   * earlier request (microsoft/onnxruntime#20050). Run `clipstack verify` on the deployed environment after enabling it.
   *
   * @default false
   */
  readonly cudaGraphs?: boolean;
  /**
   * Number of served versions: the latest ones. ONNX Runtime only, because TensorRT's cached engines do not depend on the version.
   *
   * @default - Triton's default: the latest
   */
  readonly modelVersions?: number;
  /**
   * Prefix of the engines' file names, which identifies the model and the image that they depend on. Letters, digits, '.', '_', '-' and
   * Terraform expressions. TensorRT only.
   *
   * @default - no prefix
   */
  readonly engineCachePrefix?: string;
  /**
   * What determines the precision of the TensorRT engine.
   *
   * @default - that of the default image
   */
  readonly precision?: PrecisionSource;
  /**
   * SHA-256 of the FP32 file, or of another file without manifest, which the pods verify, for the fingerprint.
   *
   * @default - no fingerprint; it is added once the weights are known
   */
  readonly weightsSha256?: string | undefined;
}

/** Configuration of a model in a deployment. */
export interface DeployedModelConfig {
  readonly config: ModelConfig;
  /** `configs/deployed.pbtxt`, with a heading. */
  readonly text: string;
  /** All errors, as `<setting> <rule>, got <value>`. */
  readonly problems: readonly string[];
}

/**
 * Returns the configuration of a model for the GPUs of a container or pod with the settings of a deployment.
 *
 * @param gpus - Number of GPUs; 0 is the CPU.
 * @throws {Error} if the spec lacks the tower
 */
export function deployedModelConfig(
  { spec, modelKind }: TunableTritonModel,
  gpus: number,
  settings: ModelConfigSettings = {},
): DeployedModelConfig {
  const { precision } = settings;
  const base = modelConfig(spec, modelKind, gpuLayout(gpus), precision);
  const problems = settingsProblems(base, modelKind, gpus > 0, settings);
  const config =
    problems.length > 0
      ? base
      : withSettings(
          modelConfig(spec, modelKind, gpuLayout(gpus, settings.instancesPerGpu), precision),
          settings,
        );
  const parameters = fingerprintOfWeights({ spec, modelKind }, config, settings);
  return {
    config: { ...config, parameters },
    text: `${headingOf(config)}\n\n${printModelConfig({ ...config, parameters })}`,
    problems: [...problems, ...checkModelConfig(config, { specs: [spec], precision })],
  };
}

function fingerprintOfWeights(
  { spec, modelKind }: TunableTritonModel,
  config: ModelConfig,
  { weightsSha256: sha256 }: ModelConfigSettings,
): ModelConfig["parameters"] {
  if (sha256 === undefined) return config.parameters;
  const preprocessing = preprocessingSha256(spec, kindModality(modelKind));
  const precision = computesInFp16(config) ? "fp16" : "fp32";
  return parametersOf(preprocessing, fingerprintOf(preprocessing, { sha256, precision }));
}

/** Maximum queue delay in microseconds: 1 s, far above the run time of any batch. */
const maxQueueDelay = 1_000_000;
/** Maximum instances per GPU; more only block each other. */
const maxInstancesPerGpu = 16;

/** Maximum served versions, each with its own memory. */
export const maxModelVersions = 8;

function settingsProblems(
  base: ModelConfig,
  modelKind: ModelKind,
  onGpu: boolean,
  settings: ModelConfigSettings,
): readonly string[] {
  const compiles = modelKind === "trt" || modelKind === "text-trt";
  const { name: model, max_batch_size: maxBatchSize } = base;
  const { optimumBatchSize: optimum, engineCachePrefix: prefix, cudaGraphs = false } = settings;
  const problems: string[] = [];
  const range = (
    name: "maxQueueDelayMicroseconds" | "instancesPerGpu" | "modelVersions",
    min: number,
    max: number,
  ) => {
    const value = settings[name];
    if (value === undefined || (Number.isInteger(value) && value >= min && value <= max)) return;
    problems.push(`${name} must be a whole number, ${min} to ${max}, got ${value}`);
  };
  range("maxQueueDelayMicroseconds", 0, maxQueueDelay);
  range("instancesPerGpu", 1, maxInstancesPerGpu);
  range("modelVersions", 1, maxModelVersions);
  const preferred = settings.preferredBatchSizes ?? [];
  const isAscending = preferred.every((size, i) => i === 0 || size > preferred[i - 1]!);
  const isWithin = (size: number) => Number.isInteger(size) && size >= 1 && size <= maxBatchSize;
  if (!isAscending || !preferred.every(isWithin)) {
    problems.push(
      `preferredBatchSizes must be whole numbers in ascending order, 1 to ${maxBatchSize} (the maximum batch size of ${model}), got [${preferred.join(", ")}]`,
    );
  }
  if (settings.modelVersions !== undefined && compiles) {
    problems.push(
      `modelVersions must not be set if TensorRT runs ${model}: its cached engines do not depend on the version, got ${settings.modelVersions}`,
    );
  }
  if (optimum !== undefined && !optimumBatchSizes.includes(optimum)) {
    problems.push(`optimumBatchSize must be ${optimumBatchSizes.join(" or ")}, got ${optimum}`);
  }
  // a file name inside the cache folder
  if (prefix !== undefined && !/^(?!\.)[\w.-]+$/.test(prefix.replaceAll(/\$\{[^}]*\}/g, "x"))) {
    problems.push(`engineCachePrefix must be letters, digits, '.', '_' and '-', got '${prefix}'`);
  }
  // also checked on the CPU, where it has no effect, because the same settings may be used with a GPU
  if (cudaGraphs && !compiles) {
    problems.push(
      `cudaGraphs must be false if ONNX Runtime runs ${model}: its CUDA graphs can return the result of an earlier request (microsoft/onnxruntime#20050), got true`,
    );
  }
  if (!onGpu || compiles) return problems;
  for (const [name, value] of Object.entries({
    optimumBatchSize: optimum,
    engineCachePrefix: prefix,
  })) {
    if (value !== undefined) {
      problems.push(`${name} is for TensorRT, which ${model} does not use, got ${value}`);
    }
  }
  return problems;
}

function withSettings(config: ModelConfig, settings: ModelConfigSettings): ModelConfig {
  const { maxQueueDelayMicroseconds: delay, preferredBatchSizes: preferred } = settings;
  const { preferred_batch_size: ofModel, ...others } = config.dynamic_batching ?? {};
  const sizes = preferred ?? ofModel ?? [];
  const batching: DynamicBatching | undefined =
    delay === undefined && preferred === undefined
      ? config.dynamic_batching
      : {
          ...(sizes.length > 0 && { preferred_batch_size: sizes }),
          ...others,
          ...(delay !== undefined && { max_queue_delay_microseconds: delay }),
        };
  const accelerator = acceleratorOf(config, settings);
  return {
    ...config,
    ...(settings.modelVersions !== undefined && {
      version_policy: { latest: { num_versions: settings.modelVersions } },
    }),
    dynamic_batching: batching,
    ...(accelerator !== undefined && {
      optimization: { execution_accelerators: { gpu_execution_accelerator: [accelerator] } },
    }),
  };
}

function tensorrtOf(config: ModelConfig): Accelerator | undefined {
  return config.optimization?.execution_accelerators?.gpu_execution_accelerator?.find(
    ({ name }) => name === "tensorrt",
  );
}

function acceleratorOf(
  config: ModelConfig,
  { optimumBatchSize: optimum, cudaGraphs = false, engineCachePrefix }: ModelConfigSettings,
): Accelerator | undefined {
  const tensorrt = tensorrtOf(config);
  if (tensorrt === undefined) return undefined;
  const shapes =
    optimum === undefined
      ? tensorrt.parameters?.trt_profile_opt_shapes
      : tensorrtShapes(config.input, Math.min(optimum, config.max_batch_size));
  // otherwise a cached engine tuned for another batch size would be used
  const tuned = shapes === tensorrt.parameters?.trt_profile_opt_shapes ? [] : [`o${optimum}`];
  const name = [engineCachePrefix, tensorrt.parameters?.trt_engine_cache_prefix, ...tuned];
  return {
    ...tensorrt,
    parameters: {
      ...tensorrt.parameters,
      trt_engine_cache_prefix: name.filter((part) => part !== undefined).join("_"),
      trt_profile_opt_shapes: shapes ?? "",
      ...(cudaGraphs && { trt_cuda_graph_enable: "true" }),
    },
  };
}

function headingOf(config: ModelConfig): string {
  return [
    "# Rendered from the settings of the environment: change those.",
    `# ${instancesText(config)}`,
  ].join("\n");
}

/** Describes the number of instances, because `count` applies to each GPU. */
export function instancesText(config: ModelConfig): string {
  const gpus = config.instance_group?.flatMap((group) => group.gpus ?? []) ?? [];
  const total = executionInstances(config, gpus.length);
  const devices = gpus.length === 0 ? "on the CPU" : `count on each GPU of [${gpus.join(", ")}]`;
  return `Execution instances: ${total} (${devices}).`;
}
