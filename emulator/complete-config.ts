import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type ModelConfigJson, readModelConfig } from "../client/triton/model-config.ts";
import { openSession } from "../inference/session/onnx-session.ts";
import type { SessionTensor } from "../inference/session/types.ts";
import { configTextOfJson } from "./config-override.ts";
import { invalidArgument } from "./oip-error.ts";

/** Maximum batch size of a model that supports batches and configures none: `default-max-batch-size` of Triton's backends. */
const defaultMaxBatchSize = 4;

/**
 * Completes the configuration of an ONNX model from its file, as Triton does without `--disable-auto-complete-config`: platform,
 * inputs, outputs, maximum batch size and dynamic batching. A configuration with inputs and outputs stays.
 *
 * @param version - Folder of a version.
 * @throws {OipError} `invalid-argument` if the model has a fixed batch size and the configuration a maximum
 * @throws {InferenceError} if the file cannot be loaded
 */
export async function completeConfig(
  config: ModelConfigJson,
  version: string,
): Promise<ModelConfigJson> {
  const file = config.default_model_filename || "model.onnx";
  const path = join(version, file);
  const isUnknown = !config.platform && !config.backend && config.ensemble_scheduling === undefined;
  const isOnnx = config.backend === "onnxruntime" || (isUnknown && basename(file) === "model.onnx");
  if (!isOnnx || (await stat(path).catch(() => undefined)) === undefined) return config;
  const completed = { ...config, platform: "onnxruntime_onnx" };
  const tensors =
    config.input.length > 0 && config.output.length > 0 ? {} : await tensorsOf(config, path);
  const text = configTextOfJson(JSON.stringify({ ...completed, ...tensors }));
  return readModelConfig(text, `${config.name} of ${dirname(version)}`);
}

async function tensorsOf(config: ModelConfigJson, modelPath: string) {
  const session = await openSession({ modelPath, batch: "any" });
  const { inputs, outputs } = session;
  await session.close();
  const canBatch = [...inputs, ...outputs].every(({ batch }) => batch === undefined);
  if (!canBatch && config.max_batch_size > 0) {
    throw invalidArgument(
      `autofill failed for model '${config.name}': model does not support batching while non-zero max_batch_size is specified`,
    );
  }
  const maximum = config.max_batch_size || (canBatch ? defaultMaxBatchSize : 0);
  const tensorOf = ({ name, dataType, dims, batch = -1 }: SessionTensor) => ({
    name,
    data_type: `TYPE_${dataType}`,
    dims: maximum > 0 ? dims : [batch, ...dims],
  });
  return {
    max_batch_size: maximum,
    ...(maximum > 1 && { dynamic_batching: config.dynamic_batching ?? {} }),
    ...(config.input.length === 0 && { input: inputs.map(tensorOf) }),
    ...(config.output.length === 0 && { output: outputs.map(tensorOf) }),
  };
}
