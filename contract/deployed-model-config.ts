import { computesInFp16, fingerprintOf, parametersOf, preprocessingSha256 } from "./fingerprint.ts";
import { issueLines } from "./issue-lines.ts";
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
import { type ModelConfigSettings, modelConfigSettings } from "./model-config-settings.ts";
import type { Modality } from "./model-spec.ts";
import { printModelConfig } from "./print-model-config.ts";
import { kindModality, type ModelKind, type TritonSpec } from "./triton-models.ts";
import type { PrecisionSource } from "./triton-releases.ts";

/** Model kinds with a configuration that a deployment may change. */
export const tunableKinds = ["fp32", "trt", "u8", "text", "text-trt"] as const;
export type TunableKind = (typeof tunableKinds)[number];

/** Model in the repository of a Triton server: a model spec in one of its model kinds. */
export interface TunableTritonModel {
  readonly spec: TritonSpec;
  readonly modelKind: TunableKind;
}

/** Model kind of each modality for Triton's backends. */
export const backendKinds = {
  onnxruntime: { image: "fp32", text: "text" },
  tensorrt: { image: "trt", text: "text-trt" },
} as const satisfies Readonly<Record<string, Readonly<Record<Modality, TunableKind>>>>;

/** Facts of a deployment that its settings do not contain. */
export interface DeploymentFacts {
  /**
   * Prefix of the engines' file names, which identifies the model and the image that they depend on. Letters, digits, '.', '_', '-' and
   * Terraform expressions. Ignored without TensorRT.
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
   * SHA-256 of the weights, for the fingerprint: of the FP32 file, or of another file without a manifest. The pods verify it.
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
  facts: DeploymentFacts = {},
): DeployedModelConfig {
  const { precision } = facts;
  const base = modelConfig(spec, modelKind, gpuLayout(gpus), precision);
  const problems = settingsProblems(base, modelKind, settings, facts);
  const config =
    problems.length > 0
      ? base
      : withSettings(
          modelConfig(spec, modelKind, gpuLayout(gpus, settings.instancesPerGpu), precision),
          settings,
          facts,
        );
  const parameters = fingerprintOfWeights({ spec, modelKind }, config, facts);
  return {
    config: { ...config, parameters },
    text: `${headingOf(config)}\n\n${printModelConfig({ ...config, parameters })}`,
    problems: [...problems, ...checkModelConfig(config, { specs: [spec], precision })],
  };
}

function fingerprintOfWeights(
  { spec, modelKind }: TunableTritonModel,
  config: ModelConfig,
  { weightsSha256: sha256 }: DeploymentFacts,
): ModelConfig["parameters"] {
  if (sha256 === undefined) return config.parameters;
  const preprocessing = preprocessingSha256(spec, kindModality(modelKind));
  const precision = computesInFp16(config) ? "fp16" : "fp32";
  return parametersOf(preprocessing, fingerprintOf(preprocessing, { sha256, precision }));
}

/** Violations of the schema, and of rules that depend on the model. */
function settingsProblems(
  { name: model, max_batch_size: maxBatchSize }: ModelConfig,
  modelKind: ModelKind,
  settings: ModelConfigSettings,
  { engineCachePrefix: prefix }: DeploymentFacts,
): readonly string[] {
  const compiles = modelKind === "trt" || modelKind === "text-trt";
  const invalid = modelConfigSettings.safeParse(settings).error;
  if (invalid !== undefined) return issueLines(invalid.issues, modelConfigSettings, settings);
  const { modelVersions: versions, preferredBatchSizes: preferred = [] } = settings;
  const problems: string[] = [];
  const isAscending = preferred.every((size, i) => i === 0 || size > preferred[i - 1]!);
  if (!isAscending || preferred.some((size) => size > maxBatchSize)) {
    problems.push(
      `preferredBatchSizes must be in ascending order, at most ${maxBatchSize} (the maximum batch size of ${model}), got [${preferred.join(", ")}]`,
    );
  }
  if (versions !== undefined && compiles) {
    problems.push(
      `modelVersions must not be set if TensorRT runs ${model}: its cached engines do not depend on the version, got ${versions}`,
    );
  }
  // a file name inside the cache folder
  if (prefix !== undefined && !/^(?!\.)[\w.-]+$/.test(prefix.replaceAll(/\$\{[^}]*\}/g, "x"))) {
    problems.push(`engineCachePrefix must be letters, digits, '.', '_' and '-', got '${prefix}'`);
  }
  // also checked on the CPU, where it has no effect, because the same settings may be used with a GPU
  if (settings.cudaGraphs && !compiles) {
    problems.push(
      `cudaGraphs must be false if ONNX Runtime runs ${model}: its CUDA graphs can return the result of an earlier request (microsoft/onnxruntime#20050), got true`,
    );
  }
  return problems;
}

function withSettings(
  config: ModelConfig,
  settings: ModelConfigSettings,
  facts: DeploymentFacts,
): ModelConfig {
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
  const accelerator = acceleratorOf(config, settings, facts);
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
  { optimumBatchSize: optimum, cudaGraphs = false }: ModelConfigSettings,
  { engineCachePrefix }: DeploymentFacts,
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

/** Describes the total number of execution instances: `count` of Triton applies to each GPU. */
export function instancesText(config: ModelConfig): string {
  const gpus = config.instance_group?.flatMap((group) => group.gpus ?? []) ?? [];
  const total = executionInstances(config, gpus.length);
  const devices = gpus.length === 0 ? "on the CPU" : `count on each GPU of [${gpus.join(", ")}]`;
  return `Execution instances: ${total} (${devices}).`;
}
