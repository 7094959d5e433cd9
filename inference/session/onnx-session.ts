import { once } from "node:events";
import { readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import type { Worker } from "node:worker_threads";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import type { NumericTensor, Tensor } from "../../contract/tensor.ts";
import { messageOf } from "../../contract/user-error.ts";
import { InferenceError } from "../threads/inference-error.ts";
import { isTransferable } from "../threads/transferable.ts";
import { acquireThread } from "./onnx-thread.ts";
import type { ModelSession, RunResult, SessionTensor } from "./types.ts";

export interface OpenSessionOptions {
  readonly modelPath: string;
  /**
   * Threads per operator.
   *
   * @default 0 - one per core available to this process
   */
  readonly intraOpThreads?: number;
  /**
   * Execution provider. If `cuda` is unavailable, opening the session fails; there is no fallback to the CPU.
   *
   * @default "cpu"
   */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /**
   * Whether the first dimension of inputs and outputs, the batch, must be dynamic. `inputs` and `outputs` of the session omit it.
   *
   * @default "dynamic"
   */
  readonly batch?: "dynamic" | "any";
  /**
   * Selects the outputs to compute. Types and shapes of the others do not matter.
   *
   * @default - all
   */
  readonly selectOutputs?: (file: FileValues) => readonly string[];
  /** Called once the runtime's thread is loading the model, so that the caller can do other work meanwhile. */
  readonly onOpening?: () => void;
  /** Called if the runtime's thread dies; the session is unusable afterwards. */
  readonly onDeath?: (error: InferenceError) => void;
}

/**
 * Loads a model into ONNX Runtime in its own thread, so that a run does not block the event loop.
 *
 * @throws {InferenceError} `model` if the file is missing or cannot be loaded
 */
export async function openSession(options: OpenSessionOptions): Promise<ModelSession> {
  const { modelPath, executionProvider = "cpu" } = options;
  const file = await stat(modelPath).catch(() => undefined);
  if (file === undefined) throw new InferenceError("model", `${modelPath}: no such file`);
  if (!file.isFile()) {
    throw new InferenceError("model", `${modelPath}: is not a file`);
  }

  const { worker } = acquireThread();
  worker.postMessage({ kind: "open", model: modelPath, sessionOptions: sessionOptions(options) });
  options.onOpening?.();
  const opened = await waitUntilOpen(worker, modelPath, executionProvider);
  try {
    return new OnnxSession(worker, opened, options);
  } catch (error) {
    // the thread frees the model
    worker.postMessage({ kind: "close" });
    await once(worker, "exit");
    throw error;
  }
}

/**
 * Returns whether the processor accumulates 8-bit products in 32 bits (VNNI); unknown processors count as without. Without VNNI the
 * 16-bit sums overflow unless ONNX Runtime uses `x64quantprecision`, which makes an int8 model take 2.2 times as long.
 */
function hasVnni(): boolean {
  return process.arch !== "x64" || /^flags\b.*\bavx(512)?_vnni\b/m.test(cpuInfo());
}

function cpuInfo(): string {
  try {
    return readFileSync("/proc/cpuinfo", "utf8");
  } catch {
    return "";
  }
}

/** Selects outputs by name; all of the file if one is missing, so that a message can list them. */
export function namedOutputs(
  names: readonly string[],
): NonNullable<OpenSessionOptions["selectOutputs"]> {
  return ({ outputs }) => {
    const found = outputs.map(({ name }) => name);
    return names.every((name) => found.includes(name)) ? names : found;
  };
}

/** Returns the options for `InferenceSession.create()`. */
export function sessionOptions({
  executionProvider = "cpu",
  intraOpThreads = 0,
}: Pick<OpenSessionOptions, "executionProvider" | "intraOpThreads"> = {}) {
  return {
    executionProviders: [executionProvider],
    graphOptimizationLevel: "all",
    intraOpNumThreads: intraOpThreads || availableParallelism(),
    interOpNumThreads: 1,
    executionMode: "sequential",
    logSeverityLevel: 3, // errors only: warnings about the graph do not concern users
    // memory plans per batch size take 62 MB after a batch of 32 and save no time
    enableMemPattern: false,
    extra: {
      session: {
        // Threads spin briefly between operators and sleep between runs. Longer spinning takes cores from image decoding: with
        // 100 µs, 12 MP photos take 1.13 times as long.
        intra_op: { allow_spinning: "1", spin_duration_us: "50" },
        force_spinning_stop: "1",
        x64quantprecision: hasVnni() ? "0" : "1",
      },
    },
  } as const;
}

async function waitUntilOpen(
  worker: Worker,
  modelPath: string,
  executionProvider: string,
): Promise<Opened> {
  const ended = new AbortController();
  const { signal } = ended;
  try {
    const [response] = (await Promise.race([
      once(worker, "message", { signal }),
      once(worker, "exit", { signal }).then(([code]) => [
        { kind: "failed", message: `the runtime's thread ended with code ${code}` },
      ]),
    ])) as [Opened | OpenFailure];
    if (response.kind === "opened") return response;
    await worker.terminate();
    throw new Error(response.message);
  } catch (error) {
    const reason = oneLine(messageOf(error));
    const provider =
      executionProvider === "cpu" ? "" : ` with EXECUTION_PROVIDER ${executionProvider}`;
    throw new InferenceError("model", `${modelPath}: cannot be loaded${provider}: ${reason}`, {
      cause: error,
    });
  } finally {
    ended.abort();
  }
}

/** Input or output, as in `InferenceSession.inputMetadata`. */
interface ValueMetadata {
  readonly name: string;
  /** For example `float32`. */
  readonly type: string;
  readonly shape: readonly (number | string)[];
}
/** Inputs and outputs of a model file. */
export interface FileValues {
  readonly inputs: readonly ValueMetadata[];
  readonly outputs: readonly ValueMetadata[];
}
interface Opened extends FileValues {
  readonly kind: "opened";
}
interface OpenFailure {
  readonly kind: "failed";
  readonly message: string;
}
interface WireTensor {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: NumericTensor["data"];
}
type RunResponse =
  | {
      readonly kind: "ran";
      readonly id: number;
      readonly outputs: readonly WireTensor[];
      readonly inferUs: number;
    }
  | { readonly kind: "failed"; readonly id: number; readonly message: string };

interface PendingRun {
  resolve(result: RunResult): void;
  reject(error: InferenceError): void;
}

class OnnxSession implements ModelSession {
  readonly inputs: readonly SessionTensor[];
  readonly outputs: readonly SessionTensor[];
  readonly #worker: Worker;
  readonly #ended: Promise<void>;
  readonly #pending = new Map<number, PendingRun>();
  #nextId = 0;
  /** Reason for which further runs are rejected. */
  #endReason: InferenceError | undefined;
  #closing: Promise<void> | undefined;

  constructor(worker: Worker, opened: Opened, options: OpenSessionOptions) {
    const { modelPath, batch = "dynamic", onDeath } = options;
    const selected = options.selectOutputs?.(opened);
    const outputs = opened.outputs.filter(({ name }) => selected?.includes(name) ?? true);
    this.inputs = opened.inputs.map((meta) => specOf(modelPath, "input", meta, batch));
    this.outputs = outputs.map((meta) => specOf(modelPath, "output", meta, batch));
    this.#worker = worker;
    worker.postMessage({ kind: "select", outputs: outputs.map(({ name }) => name) });
    worker.on("message", (response: RunResponse) => this.#settle(response));
    let reason: string | undefined;
    worker.on("error", (error) => {
      reason = error.message;
    });
    this.#ended = new Promise((resolve) => {
      worker.on("exit", (code) => {
        resolve();
        const error = new InferenceError(
          "failed",
          `the runtime's thread ended: ${oneLine(reason ?? `exit code ${code}`)}`,
        );
        const died = this.#closing === undefined;
        this.#endReason ??= error;
        for (const run of this.#pending.values()) run.reject(error);
        this.#pending.clear();
        if (died) onDeath?.(error);
      });
    });
  }

  run(inputs: readonly Tensor[]): Promise<RunResult> {
    if (this.#endReason !== undefined) return Promise.reject(this.#endReason);
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      const wire = inputs.map(toWire);
      this.#pending.set(id, { resolve, reject });
      try {
        this.#worker.postMessage(
          { kind: "run", id, inputs: wire },
          wire.map(({ data }) => data.buffer as ArrayBuffer),
        );
      } catch (error) {
        this.#pending.delete(id);
        reject(new InferenceError("failed", "the tensors cannot be transferred", { cause: error }));
      }
    });
  }

  #settle(response: RunResponse): void {
    const run = this.#pending.get(response.id);
    this.#pending.delete(response.id);
    if (response.kind === "ran") {
      run?.resolve({ outputs: response.outputs.map(fromWire), inferUs: response.inferUs });
    } else {
      run?.reject(new InferenceError("failed", oneLine(response.message)));
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#endReason ??= new InferenceError("failed", "the model is closed");
    // messages are processed in order, so earlier runs complete first
    this.#worker.postMessage({ kind: "close" });
    await this.#ended;
  }
}

/** ONNX Runtime's name of each Open Inference Protocol type that models here use. */
const runtimeTypes = { FP32: "float32", UINT8: "uint8", INT32: "int32", INT64: "int64" } as const;

const elementTypes: ReadonlyMap<string, keyof typeof runtimeTypes> = new Map(
  (Object.keys(runtimeTypes) as (keyof typeof runtimeTypes)[]).map((dataType) => [
    runtimeTypes[dataType],
    dataType,
  ]),
);

function specOf(
  modelPath: string,
  what: string,
  { name, type, shape }: ValueMetadata,
  requiredBatch: OpenSessionOptions["batch"],
): SessionTensor {
  const dataType = elementTypes.get(type);
  if (dataType === undefined) {
    throw new InferenceError(
      "model",
      `${modelPath}: ${what} '${name}' has type ${type}: unsupported`,
    );
  }
  // a scalar has one element
  const [batch = 1, ...dims] = shape;
  if (requiredBatch !== "any" && typeof batch !== "string") {
    throw new InferenceError(
      "model",
      `${modelPath}: the first dimension of ${what} '${name}' must be dynamic (the batch), got [${shape.join(", ")}]`,
    );
  }
  return {
    name,
    dataType,
    dims: dims.map((dim) => (typeof dim === "number" ? dim : -1)),
    ...(typeof batch === "number" && { batch }),
  };
}

function toWire(tensor: Tensor): WireTensor {
  const { name, shape: dims } = tensor;
  if (tensor.dataType === "BYTES") {
    throw new InferenceError("failed", `input '${name}' has type ${tensor.dataType}: unsupported`);
  }
  return { name, type: runtimeTypes[tensor.dataType], dims, data: transferable(tensor.data) };
}

/** Returns the array itself if its memory can move to another thread, otherwise a copy. */
function transferable<T extends NumericTensor["data"]>(data: T): T {
  return isTransferable(data) ? data : (data.slice() as T);
}

function fromWire({ name, type, dims, data }: WireTensor): Tensor {
  return { name, dataType: elementTypes.get(type), shape: dims, data } as Tensor;
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
