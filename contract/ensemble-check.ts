import type { EnsembleStep, ModelConfig, ModelConfigTensor } from "./model-config.ts";

interface KnownTensor {
  readonly model: string;
  readonly type: string;
  readonly dims: readonly number[];
  /** Dimensions, including the model's batch dimension. */
  readonly fullDims: readonly number[];
}

/**
 * Lists errors in the steps of an ensemble with Triton's messages: tensors that are never written, never read or written twice, type
 * and shape mismatches, and cyclic steps.
 *
 * @param modelOf - Returns the configuration of another model of the repository.
 */
export function* ensembleProblems(
  config: ModelConfig,
  modelOf: (name: string) => ModelConfig | undefined,
): Generator<string> {
  const { name } = config;
  const steps = config.ensemble_scheduling?.step ?? [];
  if (steps.length === 0) yield `must specify 'step' for ensemble '${name}'`;
  for (const [index, step] of steps.entries()) {
    const missing = [
      ...(step.model_name === "" ? ["model_name"] : []),
      ...(Object.keys(step.input_map).length === 0 ? ["input_map"] : []),
      ...(Object.keys(step.output_map).length === 0 ? ["output_map"] : []),
    ];
    for (const field of missing) {
      yield `must specify '${field}' in step ${index} of ensemble '${name}'`;
    }
    if (missing.length > 0) return;
  }
  yield* flowProblems(config, steps);

  const tensors = new Map<string, KnownTensor>(
    [...config.input, ...config.output].map((tensor) => [tensor.name, known(config, tensor)]),
  );
  for (const step of steps) {
    const model = modelOf(step.model_name);
    if (model === undefined) {
      yield `ensemble ${name} contains models that are not available or ambiguous: ${step.model_name}`;
      continue;
    }
    if (model.max_batch_size !== 0 && model.max_batch_size < config.max_batch_size) {
      yield `ensemble ${name} allows maximum batch size ${config.max_batch_size}, but it contains model ${model.name} which only allows maximum batch size to be ${model.max_batch_size}`;
    }
    yield* mappingProblems(name, step, model, tensors);
  }
}

/** Checks that each tensor is written exactly once, before it is read, and is read. */
function* flowProblems(config: ModelConfig, steps: readonly EnsembleStep[]): Generator<string> {
  const { name } = config;
  const written = new Map<string, number>();
  const read = new Set(steps.flatMap((step) => Object.values(step.input_map)));
  for (const [index, step] of steps.entries()) {
    for (const tensor of Object.values(step.output_map)) {
      if (written.has(tensor)) {
        yield `ensemble tensor '${tensor}' can appear in an output map only once for ensemble '${name}' step ${index}`;
      }
      written.set(tensor, index);
    }
  }
  for (const input of config.input) {
    if (!read.has(input.name)) {
      yield `ensemble input '${input.name}' for ensemble ${name} is not used`;
    }
  }
  const order = stepsInOrder(config);
  const ready = new Set([
    ...config.input.map((input) => input.name),
    ...order.flatMap((step) => Object.values(step.output_map)),
  ]);
  const outputs = new Set(config.output.map((output) => output.name));
  for (const output of outputs) {
    if (!written.has(output)) {
      yield `ensemble output '${output}' for ensemble ${name} is not used`;
    } else if (!ready.has(output)) {
      yield `output '${output}' for ensemble '${name}' is not written`;
    }
  }
  for (const tensor of new Set([...read, ...written.keys()])) {
    if (outputs.has(tensor)) continue;
    if (!ready.has(tensor) || !read.has(tensor)) {
      yield `ensemble tensor '${tensor}' is unused in ensemble '${name}'`;
    }
  }
}

/** Returns the runnable steps, each after the steps that write its inputs. */
export function stepsInOrder(config: ModelConfig): readonly EnsembleStep[] {
  const ready = new Set(config.input.map((input) => input.name));
  const waiting = [...(config.ensemble_scheduling?.step ?? [])];
  const order: EnsembleStep[] = [];
  for (;;) {
    const next = waiting.findIndex((step) =>
      Object.values(step.input_map).every((tensor) => ready.has(tensor)),
    );
    if (next < 0) return order;
    const [step] = waiting.splice(next, 1) as [EnsembleStep];
    order.push(step);
    for (const tensor of Object.values(step.output_map)) ready.add(tensor);
  }
}

/** Checks that the tensors mapped by a step exist and match. */
function* mappingProblems(
  ensemble: string,
  step: EnsembleStep,
  model: ModelConfig,
  tensors: Map<string, KnownTensor>,
): Generator<string> {
  const where = `in ensemble ${ensemble}`;
  for (const [input, tensor] of Object.entries(step.input_map)) {
    if (!model.input.some((candidate) => candidate.name === input)) {
      yield `${where}, ensemble tensor ${tensor} is mapping to non-existing input ${input} in model ${model.name}`;
    }
  }
  for (const input of model.input) {
    const tensor = Object.hasOwn(step.input_map, input.name)
      ? step.input_map[input.name]
      : undefined;
    if (tensor === undefined) {
      yield `${where}, input ${input.name} in model ${model.name} is not mapped to any ensemble tensors`;
    } else {
      yield* consistency(where, tensor, known(model, input), tensors);
    }
  }
  for (const [output, tensor] of Object.entries(step.output_map)) {
    const declared = model.output.find((candidate) => candidate.name === output);
    if (declared === undefined) {
      yield `${where}, ensemble tensor ${tensor} is mapped from non-existing output ${output} in model ${model.name}`;
    } else {
      yield* consistency(where, tensor, known(model, declared), tensors);
    }
  }
}

function* consistency(
  where: string,
  tensor: string,
  other: KnownTensor,
  tensors: Map<string, KnownTensor>,
): Generator<string> {
  const before = tensors.get(tensor);
  if (before === undefined) {
    tensors.set(tensor, other);
    return;
  }
  const inferred = (left: string, right: string) =>
    `${left} is inferred from model ${before.model} while ${right} is inferred from model ${other.model}`;
  if (before.type !== other.type) {
    yield `${where}, ensemble tensor ${tensor}: inconsistent data type: ${inferred(before.type, other.type)}`;
  } else if (!alike(before.dims, other.dims) && !alike(before.fullDims, other.fullDims)) {
    const text = (dims: readonly number[]) => `[${dims.join(",")}]`;
    yield `${where}, ensemble tensor ${tensor}: inconsistent shape: ${inferred(text(before.fullDims), text(other.fullDims))}`;
  }
}

function known(model: ModelConfig, { data_type, dims }: ModelConfigTensor): KnownTensor {
  return {
    model: model.name,
    type: data_type,
    dims,
    fullDims: model.max_batch_size > 0 ? [-1, ...dims] : dims,
  };
}

function alike(left: readonly number[], right: readonly number[]): boolean {
  return (
    left.length === right.length &&
    left.every((dim, axis) => dim === -1 || right[axis] === -1 || dim === right[axis])
  );
}
