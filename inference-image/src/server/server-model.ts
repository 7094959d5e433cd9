import { availableParallelism } from "node:os";
import { openclipVitB32, openclipVitB32U8, pixelBytes } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import type { Tensor } from "../contract/tensor.ts";
import { imageTensor, pixelTensor } from "../engine/image-tensor.ts";
import {
  canShareWeights,
  type OpenedSession,
  type OpenSessionOptions,
  openSession,
  type Sharing,
} from "../engine/onnx-session.ts";
import { DividedSession, SessionPool } from "../engine/session-pool.ts";
import { EngineError, type InferOptions, type ModelSession } from "../engine/types.ts";
import { readSharing } from "../model/model-sharing.ts";
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
   * Instances that compute batches side by side, each with its share of the threads; 0 is two where they can share the weights
   * and there are threads for two, and else one. Several that share the weights have one more with all threads, for a batch
   * that is alone.
   *
   * @default 0
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
    session = await openForm({ ...options, modelPath, modelBytes }, intact);
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

/** @param intact - Whether the form is what was written: one that is not is not tried in another way. */
async function openForm(
  options: ServerModelOptions & Pick<OpenSessionOptions, "modelBytes">,
  intact: Promise<boolean>,
): Promise<ModelSession> {
  try {
    const divided = options.modelBytes === undefined ? await openDivided(options) : undefined;
    if (divided !== undefined) return divided;
  } catch (error) {
    if (!(await intact)) throw error;
    options.onNotice?.(`${options.modelPath}: weights cannot be shared: ${plain(error)}`);
  }
  return openWarm(options, openclipVitB32U8, pixels);
}

const pixels = () => pixelTensor([new Uint8Array(pixelBytes)]);

/**
 * A model that is divided among several instances as soon as there are several images; `undefined` where they cannot share its
 * weights, or there is nothing to divide.
 */
async function openDivided(options: ServerModelOptions): Promise<ModelSession | undefined> {
  const { modelPath, executionProvider, onNotice } = options;
  const threads = options.intraOpThreads || availableParallelism();
  const instances = options.instances || 2;
  if (threads < 2 || instances < 2 || !canShareWeights(executionProvider)) return undefined;
  const sharing = readSharing(modelPath);
  if (sharing === undefined) return undefined;
  const open = (
    intraOpThreads: number,
    weights: Sharing["weights"],
    onDeath: ServerModelOptions["onDeath"],
  ) =>
    openInstance(
      { ...options, intraOpThreads, onDeath, sharing: { ...sharing, weights } },
      openclipVitB32U8,
      pixels(),
    );

  const whole = await open(threads, sharing.weights, options.onDeath);
  const { weights } = whole;
  if (weights === undefined) return whole;
  const openParts = async (signal: AbortSignal) => {
    let onDeath: ServerModelOptions["onDeath"];
    let died: EngineError | undefined;
    const parts = await openAll(sharesOf(threads, instances), signal, (share) =>
      open(share, weights, (error) => {
        died ??= error;
        onDeath?.(error);
      }),
    );
    onDeath = options.onDeath;
    if (died === undefined) return parts;
    await parts.close();
    throw died;
  };
  return new DividedSession(whole, openParts, (error) =>
    onNotice?.(`${modelPath}: runs with one instance instead of ${instances}: ${plain(error)}`),
  );
}

/** Threads of each instance: as evenly as they can be shared, and one at least. */
function sharesOf(threads: number, instances: number): readonly number[] {
  const [share, rest] = [Math.floor(threads / instances), threads % instances];
  return Array.from({ length: instances }, (_, index) =>
    Math.max(1, index < rest ? share + 1 : share),
  );
}

/** One after the other, beside the requests that are computed already. */
async function openAll(
  shares: readonly number[],
  signal: AbortSignal,
  open: (share: number) => Promise<ModelSession>,
): Promise<SessionPool> {
  const opened: ModelSession[] = [];
  try {
    for (const share of shares) {
      signal.throwIfAborted();
      opened.push(await open(share));
    }
    return new SessionPool(opened as [ModelSession, ...ModelSession[]]);
  } catch (error) {
    await Promise.all(opened.map((one) => one.close()));
    throw error;
  }
}

/** All instances, each with weights of its own, warm. */
async function openWarm(
  options: ServerModelOptions & Pick<OpenSessionOptions, "modelBytes">,
  signature: Signature,
  input: () => Tensor,
): Promise<ModelSession> {
  const { modelBytes } = options;
  const instances = options.instances || 1;
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
  options: ServerModelOptions & Pick<OpenSessionOptions, "modelBytes" | "sharing">,
  signature: Signature,
  input: Tensor,
): Promise<OpenedSession> {
  const { modelPath, modelBytes, sharing, intraOpThreads, executionProvider } = options;
  const { onOpening, onDeath } = options;
  const session = await openSession({
    modelPath,
    modelBytes,
    sharing,
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
