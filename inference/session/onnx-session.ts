import { once } from "node:events";
import { readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import type { Worker } from "node:worker_threads";
import type { ServerEnv } from "../../contract/server-env.ts";
import type { DataType, Tensor, TensorSpec } from "../../contract/tensor.ts";
import { acquireThread } from "./onnx-thread.ts";
import { InferenceError, type ModelSession, type RunResult } from "./types.ts";

export interface OpenSessionOptions {
  /** An ONNX file. */
  readonly modelPath: string;
  /**
   * Threads that share one operator.
   *
   * @default 0 - one for each core that this process may use
   */
  readonly intraOpThreads?: number;
  /**
   * What computes. Where `cuda` cannot be had, the session does not open: it never falls back to the CPU.
   *
   * @default "cpu"
   */
  readonly executionProvider?: ServerEnv["EXECUTION_PROVIDER"];
  /**
   * Whether the first dimension must be dynamic. The specs of the session do not have it, whatever it is.
   *
   * @default "dynamic"
   */
  readonly batch?: "dynamic" | "any";
  /** Called when the runtime's thread has begun: it needs nothing of this one until the model is open. */
  readonly onOpening?: () => void;
  /** Called when the runtime's thread dies by itself. The session is of no use then. */
  readonly onDeath?: (error: InferenceError) => void;
}

/** Load a model into ONNX Runtime, in a thread of its own: the event loop stays free while it computes. */
export async function openSession(options: OpenSessionOptions): Promise<ModelSession> {
  const { modelPath, onDeath, batch = "dynamic" } = options;
  const { executionProvider = "cpu" } = options;
  const file = await stat(modelPath).catch(() => undefined);
  if (file === undefined) throw new InferenceError("model", `${modelPath}: no such file`);
  if (!file.isFile()) {
    throw new InferenceError("model", `${modelPath}: is not a file`);
  }

  const { worker } = acquireThread();
  worker.postMessage({ kind: "open", model: modelPath, sessionOptions: sessionOptions(options) });
  options.onOpening?.();
  const opened = await firstAnswer(worker, modelPath, executionProvider);
  try {
    return new OnnxSession(worker, modelPath, opened, batch, onDeath);
  } catch (error) {
    // it is open: its thread frees it
    worker.postMessage({ kind: "close" });
    await once(worker, "exit");
    throw error;
  }
}

/**
 * Whether the processor sums products of 8-bit numbers in 32 bits. Others do it in 16, which overflow: there ONNX Runtime must
 * take its slower way (`x64quantprecision`), which it would otherwise take here too, at 2.2 times the time of an int8 model.
 * Where that cannot be seen, the slower way it is.
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

/** What a session is opened with, as `InferenceSession.create()` takes it. */
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
    logSeverityLevel: 3, // errors: warnings about the graph are not for users
    // a plan of the memory of each batch size is 62 MB after a batch of 32, and gains no time
    enableMemPattern: false,
    extra: {
      session: {
        // Threads stay awake for a moment between the operators of a run, and sleep between runs. Longer takes the cores from
        // decoding, and from others: with 100 µs 12 MP photos take 1.13 times as long.
        intra_op: { allow_spinning: "1", spin_duration_us: "50" },
        force_spinning_stop: "1",
        x64quantprecision: hasVnni() ? "0" : "1",
      },
    },
  } as const;
}

/** What the thread says of the model: loaded or not. */
async function firstAnswer(
  worker: Worker,
  modelPath: string,
  executionProvider: string,
): Promise<Opened> {
  const ended = new AbortController();
  const { signal } = ended;
  try {
    const [answer] = (await Promise.race([
      once(worker, "message", { signal }),
      once(worker, "exit", { signal }).then(([code]) => [
        { kind: "refused", message: `the runtime's thread ended with code ${code}` },
      ]),
    ])) as [Opened | Refused];
    if (answer.kind === "opened") return answer;
    await worker.terminate();
    throw new Error(answer.message);
  } catch (error) {
    const reason = oneLine(error instanceof Error ? error.message : String(error));
    const where =
      executionProvider === "cpu" ? "" : ` with EXECUTION_PROVIDER ${executionProvider}`;
    throw new InferenceError("model", `${modelPath}: cannot be loaded${where}: ${reason}`, {
      cause: error,
    });
  } finally {
    ended.abort();
  }
}

/** Of an input or output, as `InferenceSession.inputMetadata` has it. */
interface ValueMetadata {
  readonly name: string;
  /** As `float32`. */
  readonly type: string;
  readonly shape: readonly (number | string)[];
}
interface Opened {
  readonly kind: "opened";
  readonly inputs: readonly ValueMetadata[];
  readonly outputs: readonly ValueMetadata[];
}
interface Refused {
  readonly kind: "refused";
  readonly message: string;
}
interface WireTensor {
  readonly name: string;
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: Float32Array | Uint8Array;
}
type RunAnswer =
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
  readonly inputs: readonly TensorSpec[];
  readonly outputs: readonly TensorSpec[];
  readonly #worker: Worker;
  readonly #ended: Promise<void>;
  readonly #pending = new Map<number, PendingRun>();
  #nextId = 0;
  /** Why no more runs are taken. */
  #over: InferenceError | undefined;
  #closing: Promise<void> | undefined;

  constructor(
    worker: Worker,
    modelPath: string,
    opened: Opened,
    batch: OpenSessionOptions["batch"],
    onDeath: OpenSessionOptions["onDeath"],
  ) {
    this.inputs = opened.inputs.map((meta) => specOf(modelPath, "input", meta, batch));
    this.outputs = opened.outputs.map((meta) => specOf(modelPath, "output", meta, batch));
    this.#worker = worker;
    worker.on("message", (answer: RunAnswer) => this.#settle(answer));
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
        this.#over ??= error;
        for (const run of this.#pending.values()) run.reject(error);
        this.#pending.clear();
        if (died) onDeath?.(error);
      });
    });
  }

  run(inputs: readonly Tensor[]): Promise<RunResult> {
    if (this.#over !== undefined) return Promise.reject(this.#over);
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
        reject(new InferenceError("failed", "the tensors cannot be moved", { cause: error }));
      }
    });
  }

  #settle(answer: RunAnswer): void {
    const run = this.#pending.get(answer.id);
    this.#pending.delete(answer.id);
    if (answer.kind === "ran") {
      run?.resolve({ outputs: answer.outputs.map(fromWire), inferUs: answer.inferUs });
    } else {
      run?.reject(new InferenceError("failed", oneLine(answer.message)));
    }
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#over ??= new InferenceError("failed", "the model is closed");
    // the thread takes its messages in order: runs that were sent before are answered first
    this.#worker.postMessage({ kind: "close" });
    await this.#ended;
  }
}

/** The protocol's name of a type of ONNX Runtime. BYTES is not here: no model of ours has it. */
const elementTypes: Readonly<Record<string, DataType | undefined>> = {
  float32: "FP32",
  uint8: "UINT8",
};

function specOf(
  modelPath: string,
  what: string,
  { name, type, shape }: ValueMetadata,
  wanted: OpenSessionOptions["batch"],
): TensorSpec {
  const dataType = elementTypes[type];
  if (dataType === undefined) {
    throw new InferenceError(
      "model",
      `${modelPath}: ${what} '${name}' has type ${type}: unsupported`,
    );
  }
  const [batch, ...dims] = shape;
  if (wanted !== "any" && typeof batch !== "string") {
    throw new InferenceError(
      "model",
      `${modelPath}: the first dimension of ${what} '${name}' must be dynamic (the batch), got [${shape.join(", ")}]`,
    );
  }
  return {
    name,
    dataType,
    dims: dims.map((dim) => (typeof dim === "number" ? dim : -1)),
  };
}

function toWire(tensor: Tensor): WireTensor {
  const { name, shape: dims } = tensor;
  if (tensor.dataType === "FP32") {
    return { name, type: "float32", dims, data: movable(tensor.data) };
  }
  if (tensor.dataType === "UINT8") return { name, type: "uint8", dims, data: movable(tensor.data) };
  throw new InferenceError("failed", `input '${name}' has type ${tensor.dataType}: unsupported`);
}

/** The array itself where it is all of its memory, a copy where it is a part. */
function movable<T extends Float32Array | Uint8Array>(data: T): T {
  const whole = data.buffer instanceof ArrayBuffer && data.byteLength === data.buffer.byteLength;
  return whole ? data : (data.slice() as T);
}

function fromWire({ name, dims, data }: WireTensor): Tensor {
  return data instanceof Float32Array
    ? { name, dataType: "FP32", shape: dims, data }
    : { name, dataType: "UINT8", shape: dims, data };
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, " ").trim();
}
