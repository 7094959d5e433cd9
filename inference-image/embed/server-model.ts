import { availableParallelism } from "node:os";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { ModelPrecision, ServerEnv } from "../../contract/server-env.ts";
import {
  elementArrays,
  elementCount,
  type Tensor,
  type TensorSpec,
} from "../../contract/tensor.ts";
import { rowsOf } from "../../inference/session/embeddings.ts";
import { openSession } from "../../inference/session/onnx-session.ts";
import { SessionPool } from "../../inference/session/session-pool.ts";
import { requireFit, type TowerTensors, towerTensors } from "../../inference/session/tower-fit.ts";
import { InferenceError, type ModelSession } from "../../inference/session/types.ts";
import { type SelectedModel, selectModel } from "../../model-tools/prepared-file.ts";

export interface ServerModelOptions {
  readonly spec: ModelSpec;
  /** @default "image" */
  readonly modality?: Modality;
  /** Path of the model of precision `fp32`. */
  readonly modelPath: string;
  /** Selects the file, as `MODEL_PRECISION`. @default "fp32" */
  readonly precision?: ModelPrecision | undefined;
  /** Threads of all instances together; 0 is one per core that this process may use. */
  readonly intraOpThreads: number;
  /**
   * Number of sessions that run batches in parallel, each with its share of the threads and its own copy of the weights.
   *
   * @default 1
   */
  readonly instances?: number;
  /** @default "cpu" */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /** Called when the runtime's thread has started to open the model. */
  readonly onOpening?: () => void;
  /** Called when the runtime's thread exits unexpectedly. The session is unusable then. */
  readonly onDeath?: (error: InferenceError) => void;
}

/** Loaded and warm tower of the backend `onnxruntime`. */
export interface ServerModel extends SelectedModel {
  readonly spec: ModelSpec;
  readonly modality: Modality;
  readonly session: ModelSession;
  /** False once the runtime's thread has exited unexpectedly. */
  readonly alive: boolean;
}

/**
 * Opens the file of a tower that `precision` selects, and runs it once per instance.
 *
 * @throws {InferenceError} `model` if the file is missing, cannot be loaded, was derived from another model, or does not fit the
 *   model's spec
 */
export async function openServerModel(options: ServerModelOptions): Promise<ServerModel> {
  const { spec, modality = "image", modelPath, precision = "fp32", onDeath } = options;
  const selected = await selectModel(modelPath, precision).catch((error: Error) => {
    throw new InferenceError("model", error.message, { cause: error });
  });
  let alive = true;
  const session = await openInstances(selected.path, {
    ...options,
    onDeath(error) {
      alive = false;
      onDeath?.(error);
    },
  });
  return {
    ...selected,
    spec,
    modality,
    session,
    get alive() {
      return alive;
    },
  };
}

async function openInstances(
  modelPath: string,
  options: ServerModelOptions,
): Promise<ModelSession> {
  const { instances = 1 } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const opening = threadShares(threads, instances).map((intraOpThreads) =>
    openInstance(modelPath, { ...options, intraOpThreads }),
  );
  try {
    const [first, ...more] = await Promise.all(opening);
    return more.length === 0 ? first! : new SessionPool([first!, ...more]);
  } catch (error) {
    const results = await Promise.allSettled(opening);
    await Promise.all(results.map((result) => "value" in result && result.value.close()));
    throw error;
  }
}

/** Distributes threads evenly over the instances, at least one each. */
function threadShares(threads: number, instances: number): readonly number[] {
  const [share, rest] = [Math.floor(threads / instances), threads % instances];
  return Array.from({ length: instances }, (_, index) =>
    Math.max(1, index < rest ? share + 1 : share),
  );
}

async function openInstance(modelPath: string, options: ServerModelOptions): Promise<ModelSession> {
  const { spec, modality = "image", intraOpThreads, executionProvider } = options;
  const { onOpening, onDeath } = options;
  const expected = towerTensors(spec, modality);
  const session = await openSession({
    modelPath,
    intraOpThreads,
    executionProvider,
    onOpening,
    onDeath,
  });
  try {
    requireFit(modelPath, expected, session);
    const input = session.inputs.find(({ name }) => name === expected.inputs[0]!.name)!;
    const { outputs } = await session.run([zeros(expected, input)]);
    const output = outputs.find(({ name }) => name === expected.output.name);
    rowsOf(output, { count: 1, width: spec.embedding.width });
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

/** Returns an input of one item for the first run. Dynamic dimensions of the file have the size in the spec. */
function zeros({ inputs }: TowerTensors, { dataType }: TensorSpec): Tensor {
  const { name, dims } = inputs.find((input) => input.dataType === dataType)!;
  const data = new elementArrays[dataType as keyof typeof elementArrays](elementCount(dims));
  return { name, dataType, shape: [1, ...dims], data } as Tensor;
}
