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

/** Models whose configuration a deployment may change. */
export const tunableModels = [
  openclipVitB32.name,
  openclipVitB32Trt.name,
  openclipVitB32U8.name,
] as const;
export type TunableModel = (typeof tunableModels)[number];

/** Batch sizes that TensorRT's kernels can be tuned for. */
export const optimumBatchSizes = [8, 16] as const;

/**
 * What the settings of a deployment change in a model configuration. Only the queue delay is read by the variant `cpu`:
 * the rest is about GPUs.
 */
export interface ModelConfigSettings {
  /**
   * How long the batcher may hold a request back to fill a batch.
   *
   * @default 5000
   */
  readonly maxQueueDelayMicroseconds?: number;
  /**
   * Execution instances on *each* GPU; every one has its own copy of the model in the GPU's memory.
   *
   * @default 1
   */
  readonly instancesPerGpu?: number;
  /**
   * TensorRT only: the batch size that its kernels are tuned for. Every size from 1 to the maximum works.
   *
   * @default 16
   */
  readonly optimumBatchSize?: (typeof optimumBatchSizes)[number];
  /**
   * TensorRT only: replay the kernels of a batch as one CUDA graph. Refused for ONNX Runtime's own CUDA provider, which
   * replays what it recorded for the memory of an earlier request, and can answer with an older result
   * (microsoft/onnxruntime#20050). Verify the deployed environment before it is trusted with this.
   *
   * @default false
   */
  readonly cudaGraphs?: boolean;
  /**
   * TensorRT only: what its engines depend on besides their shapes (model, image), as the beginning of their file names.
   * Letters, digits, '.', '_' and '-'; Terraform expressions are taken as they are.
   *
   * @default - nothing: the model's name comes first
   */
  readonly engineCachePrefix?: string;
}

/** The configuration of a model in a deployment. */
export interface DeployedModelConfig {
  readonly config: ModelConfig;
  /** `configs/<variant>.pbtxt`, with a heading. */
  readonly text: string;
  /** Everything that is wrong with it, `<setting> <rule>, got <value>`; empty when there is nothing. */
  readonly problems: readonly string[];
}

/**
 * The configuration of `model` on the host that `variant` is for, with the settings of a deployment. Without settings it
 * is `model_repository/<model>/configs/<variant>.pbtxt`.
 */
export function deployedModelConfig(
  model: TunableModel,
  variant: ModelVariant,
  settings: ModelConfigSettings = {},
): DeployedModelConfig {
  const wrong = settingsProblems(model, variant, settings);
  const config =
    wrong.length > 0
      ? modelConfigs[model][variant]
      : withSettings(modelConfigs[model][variant], variant, settings);
  return {
    config,
    text: `${headingOf(config, variant)}\n\n${printModelConfig(config)}`,
    problems: [...wrong, ...checkModelConfig(config)],
  };
}

/** Longer, and a request waits for others that do not come: a second is far above what any batch takes. */
const maxQueueDelay = 1_000_000;
/** More instances than this only wait for each other. */
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
  // as a file name, and not one that leads out of the cache's folder
  if (prefix !== undefined && !/^(?!\.)[\w.-]+$/.test(prefix.replaceAll(/\$\{[^}]*\}/g, "x"))) {
    problems.push(`engineCachePrefix must be letters, digits, '.', '_' and '-', got '${prefix}'`);
  }
  // said on a CPU too, where nothing comes of it: the same settings go to a GPU next
  if (cudaGraphs && tensorrtOf(modelConfigs[model]["single-gpu"]) === undefined) {
    problems.push(
      `cudaGraphs must be false where ONNX Runtime runs ${model}: its CUDA graphs can answer with the result of an earlier request (microsoft/onnxruntime#20050), got true`,
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
  const waiting: ModelConfig = { ...config, dynamic_batching: batching };
  if (variant === "cpu") return waiting;
  const accelerator = acceleratorOf(config, settings);
  return {
    ...waiting,
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
  // an engine that was tuned for another batch size would be found in the cache and used
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

/** How many instances run: `count` is for each GPU, which is often misread. */
export function instancesText(config: ModelConfig): string {
  const gpus = config.instance_group?.flatMap((group) => group.gpus ?? []) ?? [];
  const total = executionInstances(config, gpus.length);
  const where = gpus.length === 0 ? "on the CPU" : `count on each GPU of [${gpus.join(", ")}]`;
  return `Execution instances: ${total} (${where}).`;
}
