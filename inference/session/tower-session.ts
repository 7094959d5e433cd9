import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import {
  elementArrays,
  elementCount,
  type Tensor,
  type TensorSpec,
} from "../../contract/tensor.ts";
import { rowsOf } from "./embeddings.ts";
import { namedOutputs, type OpenSessionOptions, openSession } from "./onnx-session.ts";
import { requireFit, type TowerTensors, towerTensors, withFileNames } from "./tower-fit.ts";
import type { ModelSession } from "./types.ts";

export interface OpenTowerOptions extends Omit<OpenSessionOptions, "batch" | "selectOutputs"> {
  readonly spec: ModelSpec;
  readonly modality: Modality;
}

export interface TowerSession {
  /** Computes the embeddings only, whichever other outputs the file has. */
  readonly session: ModelSession;
  /** Spec with the tensor names of the file. */
  readonly spec: ModelSpec;
}

/**
 * Opens the file of a tower, and runs it once. Both a server and `model check` call this function, so that they accept the same
 * files.
 *
 * @throws {InferenceError} `model` if the file is missing, cannot be loaded or does not fit the spec; `failed` if it cannot be run
 */
export async function openTowerSession(options: OpenTowerOptions): Promise<TowerSession> {
  const { modality, modelPath } = options;
  let { spec } = options;
  const session = await openSession({
    ...options,
    selectOutputs(file) {
      spec = withFileNames(spec, modality, file);
      return namedOutputs([towerTensors(spec, modality).output.name])(file);
    },
  });
  const expected = towerTensors(spec, modality);
  try {
    requireFit(modelPath, expected, session);
    const { outputs } = await session.run([zeros(expected, session.inputs[0]!)]);
    rowsOf(outputs[0], { count: 1, width: spec.embedding.width });
  } catch (error) {
    await session.close();
    throw error;
  }
  return { session, spec };
}

/** Returns an input of one item. Dynamic dimensions of the file have the size in the spec. */
function zeros({ inputs }: TowerTensors, { dataType }: TensorSpec): Tensor {
  const { name, dims } = inputs.find((input) => input.dataType === dataType)!;
  const data = new elementArrays[dataType as keyof typeof elementArrays](elementCount(dims));
  return { name, dataType, shape: [1, ...dims], data } as Tensor;
}
