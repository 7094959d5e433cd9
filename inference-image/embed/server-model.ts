import { availableParallelism } from "node:os";
import { openclipVitB32, openclipVitB32U8, pixelBytes } from "../../contract/model-signature.ts";
import type { ModelPrecision, ServerEnv } from "../../contract/server-env.ts";
import type { Tensor } from "../../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../../inference/preprocess/image-tensor.ts";
import { openSession } from "../../inference/session/onnx-session.ts";
import { SessionPool } from "../../inference/session/session-pool.ts";
import {
  InferenceError,
  type InferOptions,
  type ModelSession,
} from "../../inference/session/types.ts";
import { type SelectedModel, selectModel } from "../../model-tools/prepared-file.ts";

export interface ServerModelOptions {
  /** The model of precision `fp32`. */
  readonly modelPath: string;
  /** Selects the file, as `MODEL_PRECISION`. @default "fp32" */
  readonly precision?: ModelPrecision;
  /** Of all instances together; 0 is one for each core that this process may use. */
  readonly intraOpThreads: number;
  /**
   * Sessions that compute batches side by side, each with its share of the threads and weights of its own.
   *
   * @default 1
   */
  readonly instances?: number;
  /** @default "cpu" */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /** Called when the runtime's thread has begun to open the model. */
  readonly onOpening?: () => void;
  /** Called when the runtime dies by itself. The session is of no use then. */
  readonly onDeath?: (error: InferenceError) => void;
}

export interface ServerModel extends SelectedModel {
  readonly session: ModelSession;
  /** False when the runtime died by itself. */
  readonly alive: boolean;
  /** Preprocessed images as the input of the session, in memory of its own or not. */
  readonly toInput: (images: readonly Uint8Array[]) => ModelInput;
}

export interface ModelInput {
  readonly tensor: Tensor;
  /** As of {@link InferOptions}: `copied` where it is the memory of the image. */
  readonly inputs: NonNullable<InferOptions["inputs"]>;
}

/** Each image is copied once: here where there are several, by the batcher where there is one. */
function pixelInput(images: readonly Uint8Array[]): ModelInput {
  const [image] = images;
  if (images.length !== 1 || image === undefined) {
    return { tensor: pixelTensor(images), inputs: "taken" };
  }
  const [{ name, dataType, dims }] = openclipVitB32U8.inputs;
  return { tensor: { name, dataType, shape: [1, ...dims], data: image }, inputs: "copied" };
}

function planesInput(images: readonly Uint8Array[]): ModelInput {
  return { tensor: imageTensor(images), inputs: "taken" };
}

/**
 * Opens the file of a model that `precision` selects. The model is warm when this resolves.
 *
 * @throws {InferenceError} `model` when the file is missing, cannot be loaded, was made from another model, or has other inputs
 *   and outputs than `openclip_vit_b32` or `openclip_vit_b32_u8`
 */
export async function openServerModel(options: ServerModelOptions): Promise<ServerModel> {
  const { modelPath, precision = "fp32", onDeath } = options;
  const selected = await selectModel(modelPath, precision).catch((error: Error) => {
    throw new InferenceError("model", error.message, { cause: error });
  });
  let alive = true;
  const session = await openWarm(selected.path, {
    ...options,
    onDeath(error) {
      alive = false;
      onDeath?.(error);
    },
  });
  return {
    ...selected,
    session,
    toInput: inputOf(selected.path, session),
    get alive() {
      return alive;
    },
  };
}

/** Threads of each instance: as evenly as they can be shared, and one at least. */
function sharesOf(threads: number, instances: number): readonly number[] {
  const [share, rest] = [Math.floor(threads / instances), threads % instances];
  return Array.from({ length: instances }, (_, index) =>
    Math.max(1, index < rest ? share + 1 : share),
  );
}

/** All instances, each with weights of its own, warm. */
async function openWarm(modelPath: string, options: ServerModelOptions): Promise<ModelSession> {
  const { instances = 1 } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const opening = sharesOf(threads, instances).map((intraOpThreads) =>
    openInstance(modelPath, { ...options, intraOpThreads }),
  );
  try {
    const [first, ...more] = await Promise.all(opening);
    return more.length === 0 ? first! : new SessionPool([first!, ...more]);
  } catch (error) {
    const opened = await Promise.allSettled(opening);
    await Promise.all(opened.map((one) => "value" in one && one.value.close()));
    throw error;
  }
}

async function openInstance(modelPath: string, options: ServerModelOptions): Promise<ModelSession> {
  const { intraOpThreads, executionProvider, onOpening, onDeath } = options;
  const session = await openSession({
    modelPath,
    intraOpThreads,
    executionProvider,
    onOpening,
    onDeath,
  });
  try {
    await session.run([inputOf(modelPath, session)([new Uint8Array(pixelBytes)]).tensor]);
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

type Signature = Pick<ModelSession, "inputs" | "outputs">;

/** @throws {InferenceError} `model` if the model has other inputs or outputs */
function inputOf(modelPath: string, session: Signature): ServerModel["toInput"] {
  const got = shown(session);
  if (got === shown(openclipVitB32)) return planesInput;
  if (got === shown(openclipVitB32U8)) return pixelInput;
  const expected = `${shown(openclipVitB32)}, or ${shown(openclipVitB32U8)}`;
  throw new InferenceError("model", `${modelPath}: must be ${expected}, got ${got}`);
}

/** `image FP32 [3, 224, 224] -> embedding FP32 [512]` */
function shown({ inputs, outputs }: Signature): string {
  const list = (specs: Signature["inputs"]) =>
    specs.map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`).join(", ");
  return `${list(inputs)} -> ${list(outputs)}`;
}
