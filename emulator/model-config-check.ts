import type { ModelConfigJson } from "../client/triton/model-config.ts";
import { shapeText } from "../client/triton/wire.ts";
import type { ModelConfig, ModelConfigTensor } from "../contract/model-config.ts";
import { loadProblems } from "../contract/model-config-check.ts";
import type { ModelSession, SessionTensor } from "../inference/session/types.ts";
import { invalidArgument } from "./oip-error.ts";
import { dataTypeOf } from "./served-model.ts";

/**
 * Rejects a configuration that Triton would reject, or that uses a Triton feature the emulator lacks.
 *
 * @param folderName - Name of the model's folder.
 * @param memberConfigs - Configurations of the ensemble's loaded member models; empty for other
 *   models.
 * @throws {OipError} `invalid-argument`
 */
export function checkModelConfig(
  config: ModelConfigJson,
  folderName: string,
  memberConfigs: readonly ModelConfig[],
): void {
  if (config.name !== folderName) {
    throw invalidArgument(
      `the name of model '${config.name}' must be that of its folder, '${folderName}'`,
    );
  }
  // a configuration may come from a client
  if (config.default_model_filename.split(/[\\/]/).includes("..")) {
    throw invalidArgument(
      `default_model_filename '${config.default_model_filename}' of model '${config.name}' must be in its folder`,
    );
  }
  for (const feature of unsupportedFeatures(config)) {
    throw invalidArgument(`model '${config.name}' has ${feature}: not supported by this server`);
  }
  for (const problem of loadProblems(config, memberConfigs)) throw invalidArgument(problem);
}

/** Features of Triton that the emulator lacks and that change the results. */
function* unsupportedFeatures(config: ModelConfigJson): Generator<string> {
  if (config.sequence_batching !== undefined) yield "sequence_batching";
  const batching = (config.dynamic_batching ?? {}) as Readonly<Record<string, unknown>>;
  if (batching.priority_levels) yield "dynamic_batching.priority_levels";
  if (batching.default_queue_policy !== undefined) yield "dynamic_batching.default_queue_policy";
  const policy = config.model_transaction_policy as { decoupled?: boolean } | undefined;
  if (policy?.decoupled) yield "model_transaction_policy.decoupled";
  for (const tensor of [...config.input, ...config.output]) {
    const extras = tensor as ModelConfigTensor & Readonly<Record<string, unknown>>;
    if (extras.reshape !== undefined) yield `reshape of '${tensor.name}'`;
    if (extras.optional) yield `an optional input '${tensor.name}'`;
    if (dataTypeOf(tensor) === undefined) yield `${tensor.data_type} for '${tensor.name}'`;
  }
}

/**
 * Rejects a configuration that does not fit the model's file.
 *
 * @throws {OipError} `invalid-argument`
 */
export function checkModelFits(
  config: ModelConfigJson,
  session: Pick<ModelSession, "inputs" | "outputs">,
): void {
  if (config.input.length !== session.inputs.length) {
    throw invalidArgument(
      `model '${config.name}': the configuration has ${config.input.length} inputs, the model ${session.inputs.length}`,
    );
  }
  for (const input of config.input) checkTensorFits("input", config, input, session.inputs);
  for (const output of config.output) checkTensorFits("output", config, output, session.outputs);
}

function checkTensorFits(
  what: "input" | "output",
  config: ModelConfigJson,
  tensor: ModelConfigTensor,
  specs: readonly SessionTensor[],
): void {
  const subject = `model '${config.name}': ${what} '${tensor.name}'`;
  const spec = specs.find(({ name }) => name === tensor.name);
  if (spec === undefined) {
    const allowed = specs.map(({ name }) => name).join(", ");
    throw invalidArgument(`${subject} must be one of the model's: ${allowed}`);
  }
  if (dataTypeOf(tensor) !== spec.dataType) {
    throw invalidArgument(`${subject} must be TYPE_${spec.dataType}, got ${tensor.data_type}`);
  }
  const model = [spec.batch ?? -1, ...spec.dims];
  const configured = config.max_batch_size > 0 ? [-1, ...tensor.dims] : tensor.dims;
  const fits =
    model.length === configured.length &&
    model.every((dim, axis) => dim === -1 || configured[axis] === -1 || dim === configured[axis]);
  if (fits) return;
  throw invalidArgument(
    `${subject} must have the model's shape ${shapeText(model)}, got ${shapeText(configured)}`,
  );
}
