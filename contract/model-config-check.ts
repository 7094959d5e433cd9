import { checkOptimization } from "./check-optimization.ts";
import { ensembleProblems } from "./ensemble-check.ts";
import type { InstanceGroup, ModelConfig, ModelConfigTensor, ModelWarmup } from "./model-config.ts";
import { maxWarmupRuns, modelConfig, tritonType, warmupRuns } from "./model-config.ts";
import { allKindsOf, type TritonModel, type TritonSpec, tritonModel } from "./triton-models.ts";
import type { PrecisionSource } from "./triton-releases.ts";

/** Host and model repository that a configuration is checked against. */
export interface CheckOptions {
  /**
   * Number of GPUs visible to Triton.
   *
   * @default - unknown: GPU indices are not checked
   */
  readonly gpus?: number;
  /**
   * Specs of the models that the repository may contain, for the tensors of a model and the steps of an ensemble.
   */
  readonly specs: readonly TritonSpec[];
  /**
   * Precision source of the TensorRT that runs the model.
   *
   * @default - unknown: `precision_mode` may be set
   */
  readonly precision?: PrecisionSource | undefined;
}

/**
 * Checks a model configuration of the ONNX Runtime, Python or DALI backend or of an ensemble: errors that Triton rejects when it loads
 * the model, and mistakes that it ignores.
 *
 * @returns One line per problem, `<model>: <setting> <rule>, got <value>`.
 */
export function checkModelConfig(
  config: ModelConfig,
  { specs, gpus, precision }: CheckOptions,
): readonly string[] {
  const others = isEnsemble(config)
    ? specs.flatMap((spec) => allKindsOf(spec).map((modelKind) => modelConfig(spec, modelKind)))
    : [];
  return [
    ...loadProblems(config, others, declaredModel(config.name, specs)),
    ...checkInstances(config, gpus),
    ...checkOptimization(config, precision),
  ].map((problem) => `${config.name || "model"}: ${problem}`);
}

/**
 * Lists the errors for which Triton rejects a configuration on any host.
 *
 * @param others - Models for the steps of an ensemble.
 * @param declared - Tensors that the model must have. Without it, any tensors.
 */
export function* loadProblems(
  config: ModelConfig,
  others: readonly ModelConfig[],
  declared?: TritonModel,
): Generator<string> {
  yield* checkHead(config);
  yield* checkTensors(config, declared);
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
    isBackend(config, "python") ||
    isBackend(config, "dali") ||
    isEnsemble(config);
  if (!offered) {
    yield `platform must be onnxruntime_onnx or ensemble, or backend python or dali, got ${config.platform || config.backend ? `'${config.platform || config.backend}'` : "nothing"}`;
  }
  if (!isInteger(config.max_batch_size, 0)) {
    yield `max_batch_size must be an integer of at least 0, got ${config.max_batch_size}`;
  }
}

function isEnsemble({ platform }: ModelConfig): boolean {
  return platform === "ensemble";
}

function isBackend({ backend, platform }: ModelConfig, name: "python" | "dali"): boolean {
  return backend === name && !platform;
}

/** Model of the specs with the name; undefined if none has it. */
function declaredModel(name: string, specs: readonly TritonSpec[]): TritonModel | undefined {
  for (const spec of specs) {
    const models = allKindsOf(spec).map((modelKind) => tritonModel(spec, modelKind));
    const found = models.find((model) => model.name === name);
    if (found !== undefined) return found;
  }
  return undefined;
}

function* checkEnsemble(config: ModelConfig, others: readonly ModelConfig[]): Generator<string> {
  if (!isEnsemble(config)) {
    if (config.ensemble_scheduling !== undefined) {
      yield "ensemble_scheduling must not be given without the platform ensemble";
    }
    return;
  }
  const unsupported = {
    dynamic_batching: config.dynamic_batching !== undefined,
    instance_group: (config.instance_group ?? []).length > 0,
    optimization: (config.optimization?.execution_accelerators ?? undefined) !== undefined,
    model_warmup: (config.model_warmup ?? []).length > 0,
  };
  for (const [field, isSet] of Object.entries(unsupported)) {
    if (isSet) yield `${field} must not be given for an ensemble: its models have their own`;
  }
  yield* ensembleProblems(config, (name) => others.find((other) => other.name === name));
}

function* checkTensors(
  config: ModelConfig,
  model: Pick<TritonModel, "inputs" | "outputs"> | undefined,
): Generator<string> {
  for (const [field, expected] of [
    ["input", model?.inputs],
    ["output", model?.outputs],
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

/** Returns whether the first of `dims` is the batch dimension: the rest is as declared, or the dims of an image batch. */
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
