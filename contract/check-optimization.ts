import {
  type Accelerator,
  type ModelConfig,
  type ModelConfigTensor,
  tensorrtFile,
} from "./model-config.ts";
import { firstStronglyTyped, type PrecisionSource } from "./triton-releases.ts";

/**
 * Lists settings of `optimization` that Triton would ignore or reject.
 *
 * @param precision - Precision source of the TensorRT that runs the model; undefined if the release is unknown.
 */
export function* checkOptimization(
  config: ModelConfig,
  precision?: PrecisionSource,
): Generator<string> {
  const { cuda, eager_batching, gather_kernel_buffer_threshold, execution_accelerators } =
    config.optimization ?? {};
  const ignored = [
    ...Object.entries(cuda ?? {})
      .filter(([, value]) => (Array.isArray(value) ? value.length > 0 : Boolean(value)))
      .map(([name]) => `cuda.${name}`),
    ...(eager_batching ? ["eager_batching"] : []),
    ...(gather_kernel_buffer_threshold ? ["gather_kernel_buffer_threshold"] : []),
  ];
  for (const name of ignored) {
    yield `optimization.${name} is for the TensorRT backend only, and onnxruntime ignores it: remove it`;
  }
  const { gpu_execution_accelerator = [], cpu_execution_accelerator = [] } =
    execution_accelerators ?? {};
  const accelerators = [...gpu_execution_accelerator, ...cpu_execution_accelerator];
  if (config.backend === "python" && !config.platform && accelerators.length > 0) {
    yield `execution_accelerators are for onnxruntime, and python ignores them: remove ${accelerators.map(({ name }) => name).join(", ")}`;
    return;
  }
  for (const { name } of cpu_execution_accelerator) {
    if (name !== "openvino") yield `cpu_execution_accelerator must be openvino, got '${name}'`;
  }
  const groups = config.instance_group ?? [];
  if (
    gpu_execution_accelerator.length > 0 &&
    groups.length > 0 &&
    groups.every(({ kind }) => kind === "KIND_CPU")
  ) {
    const names = gpu_execution_accelerator.map(({ name }) => name).join(", ");
    yield `gpu_execution_accelerator needs an instance group of KIND_GPU, got ${names} with KIND_CPU only`;
  }
  for (const accelerator of gpu_execution_accelerator) {
    if (accelerator.name === "tensorrt") {
      yield* checkPrecision(accelerator, precision);
      yield* checkTensorrt(config, accelerator);
    } else if (accelerator.name !== "cuda") {
      yield `gpu_execution_accelerator must be tensorrt or cuda, got '${accelerator.name}'`;
    }
  }
}

function* checkPrecision(
  { parameters }: Accelerator,
  precision: PrecisionSource | undefined,
): Generator<string> {
  const mode = parameters?.precision_mode;
  if (precision === "graph" && mode !== undefined) {
    yield `tensorrt parameter precision_mode must not be set from Triton ${firstStronglyTyped} on: TensorRT 11 ignores it and takes the precision from the graph (default_model_filename: "${tensorrtFile}" is in FP16), got '${mode}'`;
  }
}

const anyText = /^/;
const bool = /^(true|false|1|0)$/i;
const integer = /^-?\d+$/;

/** Parameters of the TensorRT accelerator that the backend reads, with the values that it parses (its `onnxruntime.cc`). */
const tensorrtParameters: Readonly<Record<string, readonly [RegExp, string]>> = {
  precision_mode: [/^(FP32|FP16|BF16|INT8)$/, "FP32, FP16, BF16 or INT8"],
  max_workspace_size_bytes: [/^\d+$/, "a number of bytes"],
  int8_calibration_table_name: [anyText, "a name"],
  int8_use_native_calibration_table: [bool, "true or false"],
  trt_engine_cache_enable: [bool, "true or false"],
  trt_engine_cache_path: [anyText, "a path"],
  trt_engine_cache_prefix: [anyText, "a name"],
  trt_timing_cache_enable: [bool, "true or false"],
  trt_timing_cache_path: [anyText, "a path"],
  trt_force_timing_cache: [bool, "true or false"],
  trt_profile_min_shapes: [anyText, "shapes"],
  trt_profile_opt_shapes: [anyText, "shapes"],
  trt_profile_max_shapes: [anyText, "shapes"],
  trt_cuda_graph_enable: [bool, "true or false"],
  trt_dump_ep_context_model: [bool, "true or false"],
  trt_ep_context_file_path: [anyText, "a path"],
  trt_ep_context_embed_mode: [integer, "an integer"],
  trt_context_memory_sharing_enable: [bool, "true or false"],
  trt_layer_norm_fp32_fallback: [bool, "true or false"],
  trt_builder_optimization_level: [integer, "an integer"],
  trt_build_heuristics_enable: [bool, "true or false"],
  trt_auxiliary_streams: [integer, "an integer"],
  trt_tactic_sources: [anyText, "a list"],
  trt_sparsity_enable: [bool, "true or false"],
  trt_detailed_build_log: [bool, "true or false"],
  trt_force_sequential_engine_build: [bool, "true or false"],
  trt_dump_subgraphs: [bool, "true or false"],
  trt_max_partition_iterations: [integer, "an integer"],
  trt_min_subgraph_size: [integer, "an integer"],
  trt_extra_plugin_lib_paths: [anyText, "paths"],
  trt_dla_enable: [bool, "true or false"],
  trt_dla_core: [integer, "an integer"],
};

function* checkTensorrt(config: ModelConfig, { parameters = {} }: Accelerator): Generator<string> {
  for (const [key, value] of Object.entries(parameters)) {
    const rule = Object.hasOwn(tensorrtParameters, key) ? tensorrtParameters[key] : undefined;
    if (rule === undefined) {
      yield `tensorrt parameter '${key}' is unknown to the onnxruntime backend`;
    } else if (!rule[0].test(value)) {
      yield `tensorrt parameter ${key} must be ${rule[1]}, got '${value}'`;
    }
  }
  for (const cache of ["trt_engine_cache", "trt_timing_cache"]) {
    const path = parameters[`${cache}_path`] ?? "";
    if (/^(true|1)$/i.test(parameters[`${cache}_enable`] ?? "") && !path.startsWith("/")) {
      yield `tensorrt parameter ${cache}_path must be an absolute path when ${cache}_enable is true, got '${path}'`;
    }
  }
  yield* checkProfiles(config, parameters);
}

/** A batch size outside the profile stalls the server at its first request, while an engine is built. */
function* checkProfiles(
  config: ModelConfig,
  parameters: Readonly<Record<string, string>>,
): Generator<string> {
  const { input, max_batch_size } = config;
  const keys = ["min", "opt", "max"].map((name) => `trt_profile_${name}_shapes`);
  const missing = keys.filter((key) => !parameters[key]);
  if (missing.length > 0) {
    yield `tensorrt parameters ${missing.join(", ")} must be given: batches of 1 to ${max_batch_size} would each build an engine`;
    return;
  }
  const profiles = keys.map((key) => ({ key, shapes: parseShapes(parameters[key] ?? "") }));
  for (const { key, shapes } of profiles) {
    if (shapes === undefined) {
      yield `tensorrt parameter ${key} must be input:1x3x224x224[,input:…], got '${parameters[key]}'`;
    }
  }
  if (!profiles.every((profile): profile is ShapeProfile => profile.shapes !== undefined)) return;
  for (const { key, shapes } of profiles) {
    for (const name of shapes.keys()) {
      if (!input.some((tensor) => tensor.name === name)) {
        yield `tensorrt parameter ${key} must name inputs of the model, got '${name}'`;
      }
    }
  }
  for (const tensor of input) yield* checkInputProfile(tensor, profiles, config, parameters);
}

interface ShapeProfile {
  readonly key: string;
  readonly shapes: ReadonlyMap<string, readonly number[]>;
}

/** Checks the minimum, optimum and maximum shape of one input. */
function* checkInputProfile(
  { name, dims }: ModelConfigTensor,
  profiles: readonly ShapeProfile[],
  { max_batch_size: maxBatchSize, dynamic_batching: batching }: ModelConfig,
  parameters: Readonly<Record<string, string>>,
): Generator<string> {
  const keys = profiles.map(({ key }) => key);
  const [min, opt, max] = profiles.map(({ shapes }) => shapes.get(name));
  if (min === undefined || opt === undefined || max === undefined) {
    yield `tensorrt parameters ${keys.join(", ")} must all give a shape of input '${name}'`;
    return;
  }
  const batched = maxBatchSize > 0 ? [-1, ...dims] : dims;
  const isValid = (shape: readonly number[]) =>
    shape.length === batched.length &&
    shape.every((dim, i) => batched[i] === -1 || batched[i] === dim);
  const invalid = [min, opt, max].findIndex((shape) => !isValid(shape));
  if (invalid >= 0) {
    const expected = batched.map((dim) => (dim === -1 ? "N" : dim)).join("x");
    yield `tensorrt parameter ${keys[invalid]} must be ${name}:${expected}, got '${parameters[keys[invalid]!]}'`;
    return;
  }
  if (!opt.every((dim, i) => min[i]! <= dim && dim <= max[i]!)) {
    yield `tensorrt parameter trt_profile_opt_shapes must lie between min and max, got '${parameters.trt_profile_opt_shapes}'`;
  }
  const preferred = batching?.preferred_batch_size ?? [];
  const unprofiled = preferred.find((size) => size !== opt[0] && size !== maxBatchSize);
  if (unprofiled !== undefined) {
    yield `dynamic_batching.preferred_batch_size must be ${opt[0]} with TensorRT, the optimum of the only profile that ONNX Runtime executes, got ${unprofiled}`;
  }
  if (maxBatchSize > 0 && (min[0] !== 1 || max[0]! < maxBatchSize)) {
    yield `tensorrt shape profiles must cover batches of 1 to max_batch_size (${maxBatchSize}), got ${min[0]} to ${max[0]}`;
  }
}

/** `image:1x3x224x224,mask:1x16`; `undefined` for any other text. */
function parseShapes(text: string): ReadonlyMap<string, readonly number[]> | undefined {
  const shapes = new Map<string, readonly number[]>();
  for (const part of text.split(",")) {
    const match = /^([^:]+):(\d+(?:x\d+)*)$/.exec(part);
    if (match === null) return undefined;
    shapes.set(match[1]!, match[2]!.split("x").map(Number));
  }
  return shapes;
}
