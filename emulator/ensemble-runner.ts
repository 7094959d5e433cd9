import type { ModelConfigJson } from "../client/triton/model-config.ts";
import { stepsInOrder } from "../contract/ensemble-check.ts";
import type { EnsembleStep } from "../contract/model-config.ts";
import type { Tensor } from "../contract/tensor.ts";
import type { InferResult, RequestTiming } from "../inference/session/types.ts";
import { InferenceError } from "../inference/threads/inference-error.ts";
import { drainable, type ModelRunner, type RunnerEvents, type RunOptions } from "./model-runner.ts";
import { OipError } from "./oip-error.ts";
import type { ServedModel } from "./served-model.ts";

/** Looks up the current version of another model of the repository, which may have been reloaded. */
export type ModelLookup = (name: string, version: string) => ServedModel;

/** Version of a step, as in requests. */
export function stepVersion({ model_version: version }: EnsembleStep): string {
  return version > 0 ? String(version) : "";
}

/**
 * Runs an ensemble: its steps are requests to other models, which validate, batch and count them. Independent steps run in
 * parallel.
 */
export function ensembleRunner(
  config: ModelConfigJson,
  modelOf: ModelLookup,
  events: RunnerEvents,
): ModelRunner {
  const steps = stepsInOrder(config);

  async function infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const startedAt = performance.now();
    const items = inputs[0]?.shape[0] ?? 0;
    events.onStart(items);
    const { tensors, results } = startSteps(steps, inputs, async (step, stepInputs) => {
      const stepOptions = { ...options, queueTimeoutMs: remainingMs(startedAt, options) };
      return await runStep(config.name, step, modelOf, stepInputs, stepOptions);
    });
    await Promise.allSettled(results);
    const done = await Promise.all(results);
    const outputs = await Promise.all(config.output.map(({ name }) => tensors.get(name)!));
    const timing = sumOf(done.map((result) => result.timing));
    const execution = { batchSize: items, requests: [{ items, timing }] };
    events.onExecution({ ...execution, inferUs: timing.computeInferUs });
    return { outputs, timing, batchSize: items };
  }

  return {
    inputNames: config.input.map(({ name }) => name),
    downstreamItems: 0,
    ...drainable(infer),
  };
}

/**
 * Starts every step once its inputs exist.
 *
 * @param steps - In topological order, so the inputs of each step have a promise.
 * @returns the tensors of the ensemble by name, and the result of each step
 */
function startSteps(
  steps: readonly EnsembleStep[],
  inputs: readonly Tensor[],
  run: (step: EnsembleStep, inputs: readonly Tensor[]) => Promise<InferResult>,
) {
  const tensors = new Map<string, Promise<Tensor>>(
    inputs.map((tensor) => [tensor.name, Promise.resolve(tensor)]),
  );
  const results = steps.map((step) => {
    const stepInputs = Object.entries(step.input_map).map(async ([name, tensor]) => ({
      ...(await tensors.get(tensor)!),
      name,
    }));
    const result = Promise.all(stepInputs).then((read) => run(step, read));
    for (const [output, tensor] of Object.entries(step.output_map)) {
      const written = result.then(({ outputs }) => ({
        ...outputs.find(({ name }) => name === output)!,
        name: tensor,
      }));
      written.catch(() => {});
      tensors.set(tensor, written);
    }
    return result;
  });
  return { tensors, results };
}

/** @throws {InferenceError} `expired` if the queue timeout has passed */
function remainingMs(startedAt: number, { queueTimeoutMs }: RunOptions): number | undefined {
  if (queueTimeoutMs === undefined) return undefined;
  const remaining = queueTimeoutMs - (performance.now() - startedAt);
  if (remaining > 0) return remaining;
  throw new InferenceError("expired", `waited longer than ${queueTimeoutMs} ms`);
}

async function runStep(
  ensemble: string,
  step: EnsembleStep,
  modelOf: ModelLookup,
  inputs: readonly Tensor[],
  options: RunOptions,
): Promise<InferResult> {
  try {
    const model = modelOf(step.model_name, stepVersion(step));
    return await model.inferTensors(inputs, options);
  } catch (error) {
    if (!(error instanceof OipError)) throw error;
    throw new OipError(error.code, `in ensemble '${ensemble}', ${error.message}`, {
      cause: error,
    });
  }
}

/** Sums the compute time of the steps; their own statistics include the queue time. */
function sumOf(timings: readonly RequestTiming[]): RequestTiming {
  const sum = (part: (timing: RequestTiming) => number) =>
    timings.reduce((total, timing) => total + part(timing), 0);
  return {
    queueUs: 0,
    computeInputUs: sum((timing) => timing.computeInputUs),
    computeInferUs: sum((timing) => timing.computeInferUs),
    computeOutputUs: sum((timing) => timing.computeOutputUs),
  };
}
