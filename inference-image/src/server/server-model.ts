import { availableParallelism } from "node:os";
import { openclipVitB32, openclipVitB32U8, pixelBytes } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import type { Tensor } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../engine/image-tensor.ts";
import { type OpenSessionOptions, openSession } from "../engine/onnx-session.ts";
import { SessionPool } from "../engine/session-pool.ts";
import { EngineError, type InferOptions, type ModelSession } from "../engine/types.ts";
import { type PreparedModel, prepareServerModel } from "../model/prepare.ts";

export interface ServerModelOptions {
  /** The standard file: input `image` FP32 [N, 3, 224, 224], output `embedding` FP32 [N, 512]. */
  readonly modelPath: string;
  /** @default "fp32" */
  readonly precision?: ServerEnv["MODEL_PRECISION"];
  /** @default as `MODEL_CACHE_DIR` */
  readonly cacheDir?: string;
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
  /** Told in one line what takes long, or is not as it should be. */
  readonly onNotice?: (line: string) => void;
  /** Called when the runtime dies by itself. The session is of no use then. */
  readonly onDeath?: (error: EngineError) => void;
}

/** What of a model runs. */
export interface ServedForm {
  readonly precision: ServerEnv["MODEL_PRECISION"];
  /** What is different from the model file; nothing where it runs as it is. */
  readonly parts: readonly string[];
  /** Cosine of its embeddings to those of the model file, on synthetic images; 1 where it runs as it is. */
  readonly minCosine: number;
  readonly meanCosine: number;
}

export interface ServerModel {
  readonly session: ModelSession;
  /** False when the runtime died by itself. */
  readonly alive: boolean;
  readonly form: ServedForm;
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
 * Open a model in the form that this server runs fastest, else as it is. The model is warm when this resolves.
 *
 * The form is checked while it loads; one that is not what was written is made anew.
 *
 * @throws {EngineError} `model` when the file is missing, cannot be loaded, or is another model
 */
export async function openServerModel(options: ServerModelOptions): Promise<ServerModel> {
  let alive = true;
  const opened = await openFastest({
    ...options,
    onDeath(error) {
      alive = false;
      options.onDeath?.(error);
    },
  });
  return {
    ...opened,
    get alive() {
      return alive;
    },
  };
}

type OpenedModel = Omit<ServerModel, "alive">;

async function openFastest(options: ServerModelOptions): Promise<OpenedModel> {
  const { modelPath, onNotice } = options;
  try {
    const prepared = await prepare(options);
    const opened = await openPrepared(prepared, options);
    if (opened !== undefined) return opened;
    onNotice?.(`${prepared.modelPath}: is not what was written; making it anew`);
    const again = await openPrepared(await prepare(options, true), options);
    if (again !== undefined) return again;
    throw new EngineError("model", `${prepared.modelPath}: is not what was written`);
  } catch (error) {
    const standard = await openStandard(options);
    onNotice?.(`${modelPath} runs as it is, in fp32: ${plain(error)}`);
    return standard;
  }
}

async function prepare(options: ServerModelOptions, replace = false): Promise<PreparedModel> {
  const { modelPath, precision, cacheDir, executionProvider, onNotice } = options;
  const prepared = await prepareServerModel({
    modelPath,
    precision,
    cacheDir,
    executionProvider,
    replace,
    onMaking: () =>
      onNotice?.("making the form of the model that runs fastest: once, some seconds"),
  });
  if (prepared.notKept !== undefined) {
    onNotice?.(`the form of the model is not kept, set MODEL_CACHE_DIR: ${prepared.notKept}`);
  }
  return prepared;
}

/** `undefined` when its files are not what was written. */
async function openPrepared(
  prepared: PreparedModel,
  options: ServerModelOptions,
): Promise<OpenedModel | undefined> {
  const intact = prepared.isIntact();
  const { modelPath, modelBytes, precision, parts, agreement } = prepared;
  let session: ModelSession;
  try {
    session = await openWarm({ ...options, modelPath, modelBytes }, openclipVitB32U8, pixels);
  } catch (error) {
    if (!(await intact)) return undefined;
    throw error;
  }
  if (!(await intact)) {
    await session.close();
    return undefined;
  }
  const { minCosine, meanCosine } = agreement;
  return { session, toInput: pixelInput, form: { precision, parts, minCosine, meanCosine } };
}

async function openStandard(options: ServerModelOptions): Promise<OpenedModel> {
  const session = await openWarm(options, openclipVitB32, () =>
    imageTensor([new Uint8Array(pixelBytes)]),
  );
  const form = { precision: "fp32", parts: [], minCosine: 1, meanCosine: 1 } as const;
  return { session, toInput: planesInput, form };
}

const pixels = () => pixelTensor([new Uint8Array(pixelBytes)]);

/** Threads of each instance: as evenly as they can be shared, and one at least. */
function sharesOf(threads: number, instances: number): readonly number[] {
  const [share, rest] = [Math.floor(threads / instances), threads % instances];
  return Array.from({ length: instances }, (_, index) =>
    Math.max(1, index < rest ? share + 1 : share),
  );
}

/** All instances, each with weights of its own, warm. */
async function openWarm(
  options: ServerModelOptions & Pick<OpenSessionOptions, "modelBytes">,
  signature: Signature,
  input: () => Tensor,
): Promise<ModelSession> {
  const { modelBytes, instances = 1 } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const opening = sharesOf(threads, instances).map((intraOpThreads, index) => {
    // each session takes its bytes over
    const own = index < instances - 1 ? modelBytes?.slice() : modelBytes;
    return openInstance({ ...options, modelBytes: own, intraOpThreads }, signature, input());
  });
  try {
    const [first, ...more] = await Promise.all(opening);
    return more.length === 0 ? first! : new SessionPool([first!, ...more]);
  } catch (error) {
    const opened = await Promise.allSettled(opening);
    await Promise.all(opened.map((one) => "value" in one && one.value.close()));
    throw error;
  }
}

async function openInstance(
  options: ServerModelOptions & Pick<OpenSessionOptions, "modelBytes">,
  signature: Signature,
  input: Tensor,
): Promise<ModelSession> {
  const { modelPath, modelBytes, intraOpThreads, executionProvider } = options;
  const { onOpening, onDeath } = options;
  const session = await openSession({
    modelPath,
    modelBytes,
    intraOpThreads,
    executionProvider,
    onOpening,
    onDeath,
  });
  try {
    checkSignature(modelPath, session, signature);
    await session.run([input]);
  } catch (error) {
    await session.close();
    throw error;
  }
  return session;
}

type Signature = Pick<ModelSession, "inputs" | "outputs">;

/** @throws {EngineError} `model` */
function checkSignature(modelPath: string, session: ModelSession, signature: Signature): void {
  const shown = ({ inputs, outputs }: Signature) => {
    const list = (specs: ModelSession["inputs"]) =>
      specs
        .map(({ name, dataType, dims }) => `${name} ${dataType} [${dims.join(", ")}]`)
        .join(", ");
    return `${list(inputs)} -> ${list(outputs)}`;
  };
  const expected = shown(signature);
  const got = shown(session);
  if (got !== expected) {
    throw new EngineError("model", `${modelPath}: must be ${expected}, got ${got}`);
  }
}

/** The message of an error without the engine's code before it. */
function plain(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message.replace(/^\[\w+\] /, "").replace(/\s+/g, " ");
}
