import { type ModelConfigTensor, maxWarmupRuns, warmupRuns } from "../contract/model-config.ts";
import type { TensorSpec } from "../contract/tensor.ts";
import type { ModelSession } from "../engine/types.ts";
import type { ModelConfigJson } from "../triton/model-config.ts";
import { shapeText } from "../triton/wire.ts";
import { OipError } from "./oip-error.ts";
import { dataTypeOf } from "./served-model.ts";

/**
 * Refuse a configuration that Triton refuses, in its words, and what Triton offers but this server does not.
 *
 * @param folder - Name of the model's folder.
 * @throws {OipError} `invalid-argument`
 */
export function checkModelConfig(config: ModelConfigJson, folder: string): void {
  const { name } = config;
  if (name !== folder) {
    throw invalid(
      `unexpected directory name '${folder}' for model '${name}', directory name must equal model name`,
    );
  }
  if (config.platform === "ensemble" || config.ensemble_scheduling !== undefined) {
    checkEnsemble(config);
    return;
  }
  if (config.platform === "" && config.backend === "") {
    throw invalid(`must specify 'platform' or 'backend' for '${name}'`);
  }
  if (config.backend === "") {
    throw invalid(`unexpected platform type '${config.platform}' for ${name}`);
  }
  if (config.backend === "onnxruntime" && config.platform !== "onnxruntime_onnx") {
    throw invalid(
      `unexpected 'platform' and 'backend' pair, got:${config.platform}, ${config.backend}`,
    );
  }
  if (config.backend !== "onnxruntime" && config.backend !== "python") {
    throw invalid(
      `unable to find backend library for backend '${config.backend}', try specifying runtime on the model configuration.`,
    );
  }
  if (config.max_batch_size < 0) {
    throw invalid(`'max_batch_size' must be non-negative value for ${name}`);
  }
  for (const size of config.dynamic_batching?.preferred_batch_size ?? []) {
    if (size <= 0) throw invalid(`dynamic batching preferred size must be positive for ${name}`);
    if (size > config.max_batch_size) {
      throw invalid(`dynamic batching preferred size must be <= max batch size for ${name}`);
    }
  }
  const runs = warmupRuns(config.model_warmup);
  if (runs > maxWarmupRuns) {
    throw invalid(
      `model_warmup of model '${name}' must run at most ${maxWarmupRuns} times in all, got ${runs}`,
    );
  }
  // a configuration may come from a client
  if (config.default_model_filename.split(/[\\/]/).includes("..")) {
    throw invalid(
      `default_model_filename '${config.default_model_filename}' of model '${name}' must not lead out of its folder`,
    );
  }
  for (const group of config.instance_group) {
    const subject = `instance group ${group.name} of model ${name}`;
    const gpus = group.gpus?.length ?? 0;
    if ((group.kind === "KIND_CPU" || group.kind === "KIND_MODEL") && gpus > 0) {
      throw invalid(`${subject} has kind ${group.kind} but specifies one or more GPUs`);
    }
  }
  checkTensors(config);
  checkOffered(config);
}

/** The steps are checked against the models that they name, when those are loaded. */
function checkEnsemble(config: ModelConfigJson): void {
  const { name } = config;
  if (config.ensemble_scheduling === undefined) {
    throw invalid(
      `ensemble scheduling must be set for ensemble ${name} whose platform is ensemble`,
    );
  }
  if (config.platform !== "ensemble") {
    throw invalid(
      `ensemble scheduling cannot be set for model '${name}' whose platform is not ensemble`,
    );
  }
  if (config.max_batch_size < 0) {
    throw invalid(`'max_batch_size' must be non-negative value for ${name}`);
  }
  if (config.instance_group.length > 0) {
    throw invalid(`instance group should not be specified for ensemble '${name}'`);
  }
  if (config.optimization !== undefined) {
    throw invalid(`optimization should not be specified for ensemble '${name}'`);
  }
  if (config.model_warmup.length > 0) {
    throw invalid(`model_warmup can not be specified for ensemble '${name}'`);
  }
  if (config.dynamic_batching !== undefined) {
    throw invalid(`dynamic_batching should not be specified for ensemble '${name}'`);
  }
  checkTensors(config);
  checkOffered(config);
}

function checkTensors(config: ModelConfigJson): void {
  for (const input of config.input) checkTensor("model input", input);
  for (const output of config.output) checkTensor("model output", output);
}

function checkTensor(what: string, tensor: ModelConfigTensor): void {
  if (tensor.name === "") throw invalid(`${what} must specify 'name'`);
  const subject = `${what} '${tensor.name}'`;
  if ((tensor.data_type as string) === "TYPE_INVALID") {
    throw invalid(`${subject} must specify 'data_type'`);
  }
  if (tensor.dims.length === 0) throw invalid(`${subject} must specify 'dims'`);
  for (const dim of tensor.dims) {
    if (dim >= 1 || dim === -1) continue;
    throw invalid(
      `${subject} dimension must be integer >= 1, or -1 to indicate a variable-size dimension`,
    );
  }
  if (dataTypeOf(tensor) === undefined) {
    throw invalid(`${subject} has data_type ${tensor.data_type}: not supported by this server`);
  }
}

/** What Triton has and this server has not: a wrong answer would be worse than none. */
function checkOffered(config: ModelConfigJson): void {
  const absent = (feature: string) =>
    invalid(`model '${config.name}' has ${feature}: not supported by this server`);
  if (config.sequence_batching !== undefined) throw absent("sequence_batching");
  const { priority_levels: levels = 0 } = (config.dynamic_batching ?? {}) as PriorityLevels;
  if (levels > 0) throw absent("dynamic_batching.priority_levels");
  const policy = config.model_transaction_policy as { decoupled?: boolean } | undefined;
  if (policy?.decoupled) throw absent("model_transaction_policy.decoupled");
  for (const tensor of [...config.input, ...config.output] as TensorExtras[]) {
    if (tensor.reshape !== undefined) throw absent(`reshape of '${tensor.name}'`);
    if (tensor.optional) throw absent(`an optional input '${tensor.name}'`);
    if (tensor.is_shape_tensor) throw absent(`a shape tensor '${tensor.name}'`);
  }
}

interface PriorityLevels {
  readonly priority_levels?: number;
}

/** Fields of a tensor that clipstack does not use. */
interface TensorExtras extends ModelConfigTensor {
  readonly reshape?: unknown;
  readonly optional?: boolean;
  readonly is_shape_tensor?: boolean;
}

/**
 * Refuse a configuration that does not fit the model's file.
 *
 * @throws {OipError} `invalid-argument`
 */
export function checkModelFits(
  config: ModelConfigJson,
  session: Pick<ModelSession, "inputs" | "outputs">,
): void {
  const refuse = (problem: string) => invalid(`unable to load model '${config.name}', ${problem}`);
  if (config.input.length !== session.inputs.length) {
    throw refuse(
      `configuration expects ${config.input.length} inputs, model provides ${session.inputs.length}`,
    );
  }
  checkTensorsFit("input", config, config.input, session.inputs, refuse);
  checkTensorsFit("output", config, config.output, session.outputs, refuse);
  if (config.output.length === 0) throw refuse("configuration has no output");
}

function checkTensorsFit(
  what: "input" | "output",
  config: ModelConfigJson,
  tensors: readonly ModelConfigTensor[],
  specs: readonly TensorSpec[],
  refuse: (problem: string) => OipError,
): void {
  const batching = config.max_batch_size > 0;
  const seen = new Set<string>();
  for (const tensor of tensors) {
    if (seen.has(tensor.name)) throw refuse(`${what} '${tensor.name}' is listed twice`);
    seen.add(tensor.name);
    const spec = specs.find(({ name }) => name === tensor.name);
    if (spec === undefined) {
      const allowed = specs.map(({ name }) => name).join(", ");
      throw invalid(
        `unexpected inference ${what} '${tensor.name}', allowed ${what}s are: ${allowed}`,
      );
    }
    const dataType = dataTypeOf(tensor);
    if (dataType !== spec.dataType) {
      throw refuse(
        `unexpected datatype ${tensor.data_type} for ${what} '${tensor.name}', expecting TYPE_${spec.dataType}`,
      );
    }
    const model = [-1, ...spec.dims];
    const configured = batching ? [-1, ...tensor.dims] : tensor.dims;
    const fits =
      model.length === configured.length &&
      model.every((dim, axis) => dim === -1 || configured[axis] === -1 || dim === configured[axis]);
    if (fits) continue;
    throw invalid(
      `model '${config.name}', tensor '${tensor.name}': the model expects ${model.length} dimensions (shape ${shapeText(model)}) but the model configuration specifies ${configured.length} dimensions (${
        batching
          ? "an initial batch dimension because max_batch_size > 0 followed by the explicit tensor shape, making complete shape "
          : "shape "
      }${shapeText(configured)})`,
    );
  }
}

function invalid(message: string): OipError {
  return new OipError("invalid-argument", message);
}
