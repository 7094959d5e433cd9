import { availableParallelism } from "node:os";
import type { WeightsIdentity } from "../../contract/fingerprint.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import type { ModelPrecision, ServerEnv } from "../../contract/server/server-env.ts";
import { SessionPool } from "../../inference/session/session-pool.ts";
import {
  type OpenTowerOptions,
  openTowerSession,
  type TowerSession,
} from "../../inference/session/tower-session.ts";
import type { ModelSession } from "../../inference/session/types.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";
import { type SelectedModel, selectModel } from "../../model-tools/files/prepared-file.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";

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
  /** With the tensor names of the file. */
  readonly spec: ModelSpec;
  readonly modality: Modality;
  readonly session: ModelSession;
  readonly weights: WeightsIdentity;
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
  const { modality = "image", modelPath, precision = "fp32", onDeath } = options;
  const selected = await selectModel(modelPath, precision).catch((error: Error) => {
    throw new InferenceError("model", error.message, { cause: error });
  });
  let alive = true;
  // a file without manifest is read for its checksum, while it is opened
  const identity = weightsIdentity(selected.path);
  identity.catch(() => {});
  const { spec, session } = await openInstances({
    ...options,
    modality,
    modelPath: selected.path,
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
    weights: await identity,
    get alive() {
      return alive;
    },
  };
}

async function openInstances(
  options: OpenTowerOptions & Pick<ServerModelOptions, "instances" | "intraOpThreads">,
): Promise<TowerSession> {
  const { instances = 1 } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const opening = threadShares(threads, instances).map((intraOpThreads) =>
    openTowerSession({ ...options, intraOpThreads }),
  );
  const [first, ...more] = await allOrNone(opening, ({ session }) => session.close());
  if (more.length === 0) return first!;
  const sessions = more.map(({ session }) => session);
  return { ...first!, session: new SessionPool([first!.session, ...sessions]) };
}

/** Resolves when all promises do; otherwise rejects with the first failure after the others are closed. */
export async function allOrNone<T>(
  opening: readonly Promise<T>[],
  close: (opened: T) => unknown,
): Promise<readonly T[]> {
  try {
    return await Promise.all(opening);
  } catch (error) {
    const results = await Promise.allSettled(opening);
    await Promise.all(
      results.map((result) => (result.status === "fulfilled" ? close(result.value) : undefined)),
    );
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
