import type { ModelConfigJson } from "../../client/triton/model-config.ts";
import { stepsInOrder } from "../../contract/ensemble-check.ts";
import type { EnsembleStep } from "../../contract/model-config.ts";
import type { Tensor } from "../../contract/tensor.ts";
import {
  InferenceError,
  type InferResult,
  type RequestTiming,
} from "../../inference/session/types.ts";
import { CallCounter } from "../http/drain.ts";
import type { ModelRunner, RunnerEvents, RunOptions } from "./model-runner.ts";
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
  const calls = new CallCounter();
  const steps = stepsInOrder(config);
  let closing = false;

  async function infer(inputs: readonly Tensor[], options: RunOptions): Promise<InferResult> {
    const startedAt = performance.now();
    const items = inputs[0]?.shape[0] ?? 0;
    events.started(items);
    const tensors = new Map<string, Promise<Tensor>>(
      inputs.map((tensor) => [tensor.name, Promise.resolve(tensor)]),
    );
    // the steps are in topological order, so the inputs of each step have a promise
    const results = steps.map((step) => {
      const stepInputs = Object.entries(step.input_map).map(async ([name, tensor]) => ({
        ...(await tensors.get(tensor)!),
        name,
      }));
      const result = Promise.all(stepInputs).then((read) =>
        runStep(step, read, startedAt, options),
      );
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
    await Promise.allSettled(results);
    const done = await Promise.all(results);
    const outputs = await Promise.all(config.output.map(({ name }) => tensors.get(name)!));
    const timing = sumOf(done.map((result) => result.timing));
    const execution = { batchSize: items, requests: [{ items, timing }] };
    events.executed({ ...execution, inferUs: timing.computeInferUs });
    return { outputs, timing, batchSize: items };
  }

  async function runStep(
    step: EnsembleStep,
    inputs: readonly Tensor[],
    startedAt: number,
    { id, signal, queueTimeoutMs }: RunOptions,
  ): Promise<InferResult> {
    const remainingMs =
      queueTimeoutMs === undefined ? undefined : queueTimeoutMs - (performance.now() - startedAt);
    if (remainingMs !== undefined && remainingMs <= 0) {
      throw new InferenceError("expired", `waited longer than ${queueTimeoutMs} ms`);
    }
    try {
      const model = modelOf(step.model_name, stepVersion(step));
      return await model.inferTensors(inputs, { id, signal, queueTimeoutMs: remainingMs });
    } catch (error) {
      if (!(error instanceof OipError)) throw error;
      throw new OipError(error.code, `in ensemble '${config.name}', ${error.message}`, {
        cause: error,
      });
    }
  }

  return {
    inputNames: config.input.map(({ name }) => name),
    infer: async (inputs, options) => {
      if (closing) throw new InferenceError("draining", "the model is draining");
      return await calls.during(() => infer(inputs, options));
    },
    downstreamItems: 0,
    async close() {
      closing = true;
      await calls.answered();
    },
  };
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
