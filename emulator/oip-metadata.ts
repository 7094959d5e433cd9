import type { TensorSpec } from "../contract/tensor.ts";
import type { DurationCount } from "./model-counters.ts";
import packageJson from "./package.json" with { type: "json" };
import type { ServedModel } from "./served-model.ts";

/** Metadata and statistics of the server and its models, with the field names that HTTP and gRPC share. */

export const serverMetadata = {
  name: "clipstack",
  version: packageJson.version,
  extensions: [
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
  ],
} as const;

export function modelMetadata(model: ServedModel, versions: readonly string[]) {
  const tensor = ({ name, dataType, dims }: TensorSpec) => ({
    name,
    datatype: dataType,
    shape: dims,
  });
  return {
    name: model.name,
    versions,
    // the Python backend has no platform
    platform: model.config.platform || model.config.backend,
    inputs: model.inputs.map(tensor),
    outputs: model.outputs.map(tensor),
  };
}

export function modelStatistics(model: ServedModel) {
  const { counters } = model;
  const none: DurationCount = { count: 0, ns: 0 };
  return {
    name: model.name,
    version: model.version,
    last_inference: counters.lastInferenceMs,
    inference_count: counters.inferenceCount,
    execution_count: counters.executionCount,
    inference_stats: {
      success: counters.success,
      fail: counters.fail,
      queue: counters.queue,
      compute_input: counters.computeInput,
      compute_infer: counters.computeInfer,
      compute_output: counters.computeOutput,
      cache_hit: none,
      cache_miss: none,
    },
    response_stats: {},
    batch_stats: counters.batches.map((batch) => ({
      batch_size: batch.batchSize,
      compute_input: batch.computeInput,
      compute_infer: batch.computeInfer,
      compute_output: batch.computeOutput,
    })),
    memory_usage: [],
  };
}
