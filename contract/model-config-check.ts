import { ensembleProblems } from "./ensemble-check.ts";
import type {
  Accelerator,
  InstanceGroup,
  ModelConfig,
  ModelConfigTensor,
  ModelWarmup,
} from "./model-config.ts";
import { maxWarmupRuns, modelConfigs, tritonType, warmupRuns } from "./model-config.ts";
import { type ModelSignature, models } from "./model-signature.ts";

/** What the host that a configuration is for has. */
export interface CheckOptions {
  /**
   * GPUs that Triton sees.
   *
   * @default - not known: indices are not compared with it
   */
  readonly gpus?: number;
  /**
   * The other models of the repository, which the steps of an ensemble name.
   *
   * @default - those of `model_repository/`
   */
  readonly models?: readonly ModelConfig[];
}

/**
 * Everything that is wrong with a model configuration, for the ONNX Runtime and Python backends and for an ensemble: what
 * Triton refuses when it loads the model, and what it accepts in silence and should not.
 *
 * @returns One line for each problem, `<model>: <setting> <rule>, got <value>`; empty when there is none.
 */
export function checkModelConfig(
  config: ModelConfig,
  options: CheckOptions = {},
): readonly string[] {
  return [
    ...loadProblems(config, options.models ?? repository()),
    ...checkInstances(config, options.gpus),
    ...checkOptimization(config),
  ].map((problem) => `${config.name || "model"}: ${problem}`);
}

/**
 * Lists why Triton would reject a configuration, whatever the host.
 *
 * @param others - The models that the steps of an ensemble name.
 */
export function* loadProblems(
  config: ModelConfig,
  others: readonly ModelConfig[],
): Generator<string> {
  yield* checkHead(config);
  yield* checkTensors(config);
  yield* checkEnsemble(config, others);
  yield* checkBatching(config);
  yield* checkWarmup(config);
}

const maxInt32 = 2 ** 31 - 1;

function isInteger(value: unknown, min: number): boolean {
  return Number.isInteger(value) && (value as number) >= min && (value as number) <= maxInt32;
}

function* checkHead(config: ModelConfig): Generator<string> {
  if (!config.name) yield "name must be the name of the model's folder, got nothing";
  const offered =
    config.platform === "onnxruntime_onnx" ||
    config.backend === "onnxruntime" ||
    isPython(config) ||
    isEnsemble(config);
  if (!offered) {
    yield `platform must be onnxruntime_onnx or ensemble, or backend python, got ${config.platform || config.backend ? `'${config.platform || config.backend}'` : "nothing"}`;
  }
  if (!isInteger(config.max_batch_size, 0)) {
    yield `max_batch_size must be an integer of at least 0, got ${config.max_batch_size}`;
  }
}

function isEnsemble({ platform }: ModelConfig): boolean {
  return platform === "ensemble";
}

function isPython({ backend, platform }: ModelConfig): boolean {
  return backend === "python" && !platform;
}

/** What the models of `model_repository/` are, whatever the device. */
function repository(): readonly ModelConfig[] {
  return Object.values(modelConfigs).map((configs) => configs.default);
}

function* checkEnsemble(config: ModelConfig, others: readonly ModelConfig[]): Generator<string> {
  if (!isEnsemble(config)) {
    if (config.ensemble_scheduling !== undefined) {
      yield "ensemble_scheduling must not be given without the platform ensemble";
    }
    return;
  }
  const foreign = {
    dynamic_batching: config.dynamic_batching !== undefined,
    instance_group: (config.instance_group ?? []).length > 0,
    optimization: (config.optimization?.execution_accelerators ?? undefined) !== undefined,
    model_warmup: (config.model_warmup ?? []).length > 0,
  };
  for (const [field, given] of Object.entries(foreign)) {
    if (given) yield `${field} must not be given for an ensemble: its models have their own`;
  }
  yield* ensembleProblems(config, (name) => others.find((other) => other.name === name));
}

function* checkTensors(config: ModelConfig): Generator<string> {
  const signature: ModelSignature | undefined = models.find(({ name }) => name === config.name);
  for (const [field, expected] of [
    ["input", signature?.inputs],
    ["output", signature?.outputs],
  ] as const) {
    const tensors = config[field];
    if (tensors.length === 0) yield `${field} must list at least one tensor, got none`;
    const names = tensors.map(({ name }) => name);
    for (const name of new Set(names.filter((item, i) => names.indexOf(item) !== i))) {
      yield `${field} must not name '${name}' twice`;
    }
    for (const tensor of tensors) {
      const declared = expected?.find(({ name }) => name === tensor.name);
      if (expected !== undefined && declared === undefined && tensor.name) {
        const list = expected.map(({ name }) => name).join(", ");
        yield `${field} must be one of ${list}, got '${tensor.name}'`;
      }
      yield* checkTensor(config, field, tensor, declared?.dims);
      if (declared !== undefined && tensor.data_type !== tritonType(declared.dataType)) {
        yield `${field} ${tensor.name}: data_type must be ${tritonType(declared.dataType)}, got ${tensor.data_type}`;
      }
    }
    for (const { name } of expected ?? []) {
      if (tensors.length > 0 && !names.includes(name)) {
        yield `${field} must list '${name}', got ${names.join(", ")}`;
      }
    }
  }
}

function* checkTensor(
  config: ModelConfig,
  field: string,
  { name, data_type, dims }: ModelConfigTensor,
  declared: readonly number[] | undefined,
): Generator<string> {
  if (!name) yield `${field} must have a name`;
  const label = `${field} ${name || "without a name"}`;
  if (!data_type || String(data_type) === "TYPE_INVALID") yield `${label}: data_type must be given`;
  const got = `[${dims.join(", ")}]`;
  if (dims.length === 0) {
    yield `${label}: dims must be given`;
  } else if (dims.some((dim) => dim !== -1 && !isInteger(dim, 1))) {
    yield `${label}: dims must be integers of at least 1, or -1 for any size, got ${got}`;
  } else if (config.max_batch_size > 0 && hasBatchDimension(dims, declared)) {
    yield `${label}: dims must not include the batch dimension, which max_batch_size adds, got ${got}`;
  } else if (declared !== undefined && declared.join() !== dims.join()) {
    yield `${label}: dims must be [${declared.join(", ")}], got ${got}`;
  }
}

/** Whether the first of `dims` is the batch: the rest is what the model declares, or it is an image of any number. */
function hasBatchDimension(dims: readonly number[], declared: readonly number[] | undefined) {
  if (declared !== undefined) return dims.slice(1).join() === declared.join();
  return dims.length === 4 && dims[0] === -1;
}

function* checkBatching({ dynamic_batching, max_batch_size }: ModelConfig): Generator<string> {
  if (dynamic_batching === undefined) return;
  if (max_batch_size === 0) {
    yield "dynamic_batching needs a max_batch_size of at least 1, got 0";
    return;
  }
  for (const size of dynamic_batching.preferred_batch_size ?? []) {
    if (!isInteger(size, 1) || size > max_batch_size) {
      yield `dynamic_batching.preferred_batch_size must be 1 to max_batch_size (${max_batch_size}), got ${size}`;
    }
  }
  const delay = dynamic_batching.max_queue_delay_microseconds ?? 0;
  if (!Number.isSafeInteger(delay) || delay < 0) {
    yield `dynamic_batching.max_queue_delay_microseconds must be an integer of at least 0, got ${delay}`;
  }
}

function* checkInstances(
  { instance_group = [] }: ModelConfig,
  gpusOfHost: number | undefined,
): Generator<string> {
  for (const [i, group] of instance_group.entries()) {
    for (const problem of checkGroup(group, gpusOfHost)) yield `instance_group[${i}].${problem}`;
  }
}

function* checkGroup(
  { kind, count, gpus = [] }: InstanceGroup,
  gpusOfHost: number | undefined,
): Generator<string> {
  if (kind !== "KIND_GPU" && kind !== "KIND_CPU") {
    yield `kind must be KIND_GPU or KIND_CPU, so that it does not depend on the host, got ${kind}`;
  }
  if (count !== undefined && !isInteger(count, 1)) {
    yield `count must be an integer of at least 1, got ${count}`;
  }
  if (kind === "KIND_CPU" && gpus.length > 0) {
    yield `gpus must not be given with KIND_CPU, got [${gpus.join(", ")}]`;
    return;
  }
  if (kind === "KIND_GPU" && gpusOfHost === 0) {
    yield "kind must be KIND_CPU on a host without a GPU, got KIND_GPU";
    return;
  }
  for (const gpu of new Set(gpus)) {
    if (!isInteger(gpu, 0)) {
      yield `gpus must be indices of GPUs, got ${gpu}`;
    } else if (gpusOfHost !== undefined && gpu >= gpusOfHost) {
      yield `gpus must be 0 to ${gpusOfHost - 1}, the host has ${gpusOfHost}, got ${gpu}`;
    }
    if (gpus.filter((other) => other === gpu).length > 1) {
      yield `gpus must not list ${gpu} twice; more instances on one GPU are a higher count`;
    }
  }
}

function* checkOptimization(config: ModelConfig): Generator<string> {
  const { cuda, eager_batching, gather_kernel_buffer_threshold, execution_accelerators } =
    config.optimization ?? {};
  const foreign = [
    ...Object.entries(cuda ?? {})
      .filter(([, value]) => (Array.isArray(value) ? value.length > 0 : Boolean(value)))
      .map(([name]) => `cuda.${name}`),
    ...(eager_batching ? ["eager_batching"] : []),
    ...(gather_kernel_buffer_threshold ? ["gather_kernel_buffer_threshold"] : []),
  ];
  for (const name of foreign) {
    yield `optimization.${name} is for the TensorRT backend only, and onnxruntime ignores it: remove it`;
  }
  const { gpu_execution_accelerator = [], cpu_execution_accelerator = [] } =
    execution_accelerators ?? {};
  const given = [...gpu_execution_accelerator, ...cpu_execution_accelerator];
  if (isPython(config) && given.length > 0) {
    yield `execution_accelerators are for onnxruntime, and python ignores them: remove ${given.map(({ name }) => name).join(", ")}`;
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
    if (accelerator.name === "tensorrt") yield* checkTensorrt(config, accelerator);
    else if (accelerator.name !== "cuda") {
      yield `gpu_execution_accelerator must be tensorrt or cuda, got '${accelerator.name}'`;
    }
  }
}

const anyText = /^/;
const bool = /^(true|false|1|0)$/i;
const integer = /^-?\d+$/;

/** Parameters of the TensorRT accelerator that the backend reads, with what it can parse (its `onnxruntime.cc`). */
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
      yield `tensorrt parameter '${key}' is not one that the onnxruntime backend knows`;
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

/** Without a profile that covers it, a batch size seen for the first time stalls the server while an engine is built. */
function* checkProfiles(
  { input, max_batch_size }: ModelConfig,
  parameters: Readonly<Record<string, string>>,
): Generator<string> {
  const keys = ["min", "opt", "max"].map((name) => `trt_profile_${name}_shapes`);
  const missing = keys.filter((key) => !parameters[key]);
  if (missing.length > 0) {
    yield `tensorrt parameters ${missing.join(", ")} must be given: batches of 1 to ${max_batch_size} would each build an engine`;
    return;
  }
  const parsed = keys.map((key) => ({ key, shapes: parseShapes(parameters[key] ?? "") }));
  for (const { key, shapes } of parsed) {
    if (shapes === undefined) {
      yield `tensorrt parameter ${key} must be input:1x3x224x224[,input:…], got '${parameters[key]}'`;
    }
  }
  const [min, opt, max] = parsed.map(({ shapes }) => shapes);
  if (min === undefined || opt === undefined || max === undefined) return;
  for (const { key, shapes = new Map() } of parsed) {
    for (const name of shapes.keys()) {
      if (!input.some((tensor) => tensor.name === name)) {
        yield `tensorrt parameter ${key} must name inputs of the model, got '${name}'`;
      }
    }
  }
  for (const { name, dims } of input) {
    const profile = [min.get(name), opt.get(name), max.get(name)] as const;
    const [low, middle, high] = profile;
    if (low === undefined || middle === undefined || high === undefined) {
      yield `tensorrt parameters ${keys.join(", ")} must all give a shape of input '${name}'`;
      continue;
    }
    const batched = max_batch_size > 0 ? [-1, ...dims] : dims;
    const fits = (shape: readonly number[]) =>
      shape.length === batched.length &&
      shape.every((dim, i) => batched[i] === -1 || batched[i] === dim);
    const wrong = profile.findIndex((shape) => !fits(shape ?? []));
    if (wrong >= 0) {
      const expected = batched.map((dim) => (dim === -1 ? "N" : dim)).join("x");
      yield `tensorrt parameter ${keys[wrong]} must be ${name}:${expected}, got '${parameters[keys[wrong]!]}'`;
      continue;
    }
    if (!middle.every((dim, i) => low[i]! <= dim && dim <= high[i]!)) {
      yield `tensorrt parameter trt_profile_opt_shapes must lie between min and max, got '${parameters.trt_profile_opt_shapes}'`;
    }
    if (max_batch_size > 0 && (low[0] !== 1 || high[0]! < max_batch_size)) {
      yield `tensorrt shape profiles must cover batches of 1 to max_batch_size (${max_batch_size}), got ${low[0]} to ${high[0]}`;
    }
  }
}

/** `image:1x3x224x224,mask:1x16`; `undefined` when it is not of that form. */
function parseShapes(text: string): ReadonlyMap<string, readonly number[]> | undefined {
  const shapes = new Map<string, readonly number[]>();
  for (const part of text.split(",")) {
    const match = /^([^:]+):(\d+(?:x\d+)*)$/.exec(part);
    if (match === null) return undefined;
    shapes.set(match[1]!, match[2]!.split("x").map(Number));
  }
  return shapes;
}

function* checkWarmup(config: ModelConfig): Generator<string> {
  const samples = config.model_warmup ?? [];
  const runs = warmupRuns(samples);
  if (!(runs <= maxWarmupRuns)) {
    yield `model_warmup must run at most ${maxWarmupRuns} times in all, got ${runs}`;
  }
  for (const [i, warmup] of samples.entries()) {
    for (const problem of checkSample(config, warmup)) yield `model_warmup[${i}]${problem}`;
  }
}

function* checkSample(
  { input, max_batch_size }: ModelConfig,
  warmup: ModelWarmup,
): Generator<string> {
  const [least, most] = max_batch_size > 0 ? [1, max_batch_size] : [0, 1];
  if (!isInteger(warmup.batch_size, least) || warmup.batch_size > most) {
    yield `.batch_size must be ${least} to ${most}, got ${warmup.batch_size}`;
  }
  for (const name of Object.keys(warmup.inputs)) {
    if (!input.some((tensor) => tensor.name === name)) {
      yield `.inputs must name inputs of the model, got '${name}'`;
    }
  }
  for (const { name, data_type, dims } of input) {
    const sample = Object.hasOwn(warmup.inputs, name) ? warmup.inputs[name] : undefined;
    if (sample === undefined) {
      yield `.inputs must give '${name}'`;
      continue;
    }
    if (sample.data_type !== data_type) {
      yield `.inputs.${name}.data_type must be ${data_type}, got ${sample.data_type}`;
    }
    const fits =
      sample.dims.length === dims.length &&
      dims.every((dim, j) => (dim === -1 ? isInteger(sample.dims[j], 1) : dim === sample.dims[j]));
    if (!fits) {
      yield `.inputs.${name}.dims must be [${dims.join(", ")}], got [${sample.dims.join(", ")}]`;
    }
  }
}
