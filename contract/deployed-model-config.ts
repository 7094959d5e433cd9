import {
  type Accelerator,
  type DynamicBatching,
  executionInstances,
  type ModelConfig,
  type ModelVariant,
  modelConfigs,
  printModelConfig,
  tensorrtShapes,
} from "./model-config.ts";
import { checkModelConfig } from "./model-config-check.ts";
import { openclipVitB32, openclipVitB32Trt, openclipVitB32U8 } from "./model-signature.ts";

/** Models with a configuration that a deployment may change. */
export const tunableModels = [
  openclipVitB32.name,
  openclipVitB32Trt.name,
  openclipVitB32U8.name,
] as const;
export type TunableModel = (typeof tunableModels)[number];

/** Shipped model of each of Triton's backends. */
export const shippedModels = {
  onnxruntime: openclipVitB32.name,
  tensorrt: openclipVitB32Trt.name,
} as const satisfies Readonly<Record<string, TunableModel>>;

/** Batch sizes for which TensorRT's kernels can be tuned. */
export const optimumBatchSizes = [8, 16] as const;

/**
 * Settings of a deployment that change a model configuration. The variant `cpu` uses only the queue delay.
 */
export interface ModelConfigSettings {
  /**
   * Maximum delay of a request to fill a batch.
   *
   * @default 5000
   */
  readonly maxQueueDelayMicroseconds?: number;
  /**
   * Execution instances per GPU. Each has its own copy of the model in GPU memory.
   *
   * @default 1
   */
  readonly instancesPerGpu?: number;
  /**
   * Batch size for which TensorRT's kernels are tuned. Every size from 1 to the maximum works. TensorRT only.
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
   * Prefix of the engines' file names, which identifies the model and the image that they depend on. Letters, digits, '.', '_', '-' and
   * Terraform expressions. TensorRT only.
   *
   * @default - no prefix
   */
  readonly engineCachePrefix?: string;
}

/** Configuration of a model in a deployment. */
export interface DeployedModelConfig {
  readonly config: ModelConfig;
  /** `configs/<variant>.pbtxt`, with a heading. */
  readonly text: string;
  /** All errors, as `<setting> <rule>, got <value>`. */
  readonly problems: readonly string[];
}

/**
 * Returns the configuration of `model` for `variant` with the settings of a deployment. Without settings it equals
 * `model_repository/<model>/configs/<variant>.pbtxt`.
 */
export function deployedModelConfig(
  model: TunableModel,
  variant: ModelVariant,
  settings: ModelConfigSettings = {},
): DeployedModelConfig {
  const problems = settingsProblems(model, variant, settings);
  const config =
    problems.length > 0
      ? modelConfigs[model][variant]
      : withSettings(modelConfigs[model][variant], variant, settings);
  return {
    config,
    text: `${headingOf(config, variant)}\n\n${printModelConfig(config)}`,
    problems: [...problems, ...checkModelConfig(config)],
  };
}

/** Maximum queue delay in microseconds: 1 s, far above the run time of any batch. */
const maxQueueDelay = 1_000_000;
/** Maximum instances per GPU; more only block each other. */
const maxInstancesPerGpu = 16;

function settingsProblems(
  model: TunableModel,
  variant: ModelVariant,
  settings: ModelConfigSettings,
): readonly string[] {
  const { optimumBatchSize: optimum, engineCachePrefix: prefix, cudaGraphs = false } = settings;
  const problems: string[] = [];
  const range = (
    name: "maxQueueDelayMicroseconds" | "instancesPerGpu",
    min: number,
    max: number,
  ) => {
    const value = settings[name];
    if (value === undefined || (Number.isInteger(value) && value >= min && value <= max)) return;
    problems.push(`${name} must be a whole number, ${min} to ${max}, got ${value}`);
  };
  range("maxQueueDelayMicroseconds", 0, maxQueueDelay);
  range("instancesPerGpu", 1, maxInstancesPerGpu);
  if (optimum !== undefined && !optimumBatchSizes.includes(optimum)) {
    problems.push(`optimumBatchSize must be ${optimumBatchSizes.join(" or ")}, got ${optimum}`);
  }
  // a file name inside the cache folder
  if (prefix !== undefined && !/^(?!\.)[\w.-]+$/.test(prefix.replaceAll(/\$\{[^}]*\}/g, "x"))) {
    problems.push(`engineCachePrefix must be letters, digits, '.', '_' and '-', got '${prefix}'`);
  }
  // also checked for the variant cpu, where it has no effect, because the same settings may be used with a GPU
  if (cudaGraphs && tensorrtOf(modelConfigs[model]["single-gpu"]) === undefined) {
    problems.push(
      `cudaGraphs must be false if ONNX Runtime runs ${model}: its CUDA graphs can return the result of an earlier request (microsoft/onnxruntime#20050), got true`,
    );
  }
  if (variant === "cpu" || tensorrtOf(modelConfigs[model][variant]) !== undefined) return problems;
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

function withSettings(
  config: ModelConfig,
  variant: ModelVariant,
  settings: ModelConfigSettings,
): ModelConfig {
  const delay = settings.maxQueueDelayMicroseconds;
  const batching: DynamicBatching | undefined =
    delay === undefined
      ? config.dynamic_batching
      : { ...config.dynamic_batching, max_queue_delay_microseconds: delay };
  const batched: ModelConfig = { ...config, dynamic_batching: batching };
  if (variant === "cpu") return batched;
  const accelerator = acceleratorOf(config, settings);
  return {
    ...batched,
    instance_group: config.instance_group?.map((group) => ({
      ...group,
      count: settings.instancesPerGpu ?? group.count,
    })),
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
      : tensorrtShapes(config.input, optimum);
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

function headingOf(config: ModelConfig, variant: ModelVariant): string {
  return [
    "# Rendered from the settings of the environment: change those.",
    `# Variant ${variant}. ${instancesText(config)}`,
  ].join("\n");
}

/** Describes the number of instances, because `count` applies to each GPU. */
export function instancesText(config: ModelConfig): string {
  const gpus = config.instance_group?.flatMap((group) => group.gpus ?? []) ?? [];
  const total = executionInstances(config, gpus.length);
  const devices = gpus.length === 0 ? "on the CPU" : `count on each GPU of [${gpus.join(", ")}]`;
  return `Execution instances: ${total} (${devices}).`;
}
