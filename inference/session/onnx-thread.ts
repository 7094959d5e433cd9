import { Worker } from "node:worker_threads";
import { threadLimits } from "../threads/thread-limits.ts";

/**
 * Thread of a model session. This module has few imports, so that a program can start the thread first and load its other modules
 * while the thread loads ONNX Runtime.
 */
export interface OnnxThread {
  readonly worker: Worker;
  /** Resolves when the thread has ended. */
  readonly ended: Promise<void>;
}

// The official builds send telemetry to Microsoft unless this is set before the library is loaded. Native code reads the environment
// of the process, not a worker's copy in `process.env`.
process.env.ORT_DISABLE_TELEMETRY ??= "1";

let spare: OnnxThread | undefined;

/** Starts a thread for the next session. It does not keep the process alive. */
export function startSpareThread(): void {
  if (spare !== undefined) return;
  const thread = startThread();
  thread.worker.unref();
  // the thread started in its place reports the failure
  thread.worker.on("error", () => {});
  spare = thread;
  void thread.ended.then(() => {
    if (spare === thread) spare = undefined;
  });
}

/** Returns the spare thread, or a new one if there is none. */
export function acquireThread(): OnnxThread {
  const thread = spare ?? startThread();
  spare = undefined;
  thread.worker.ref();
  return thread;
}

function startThread(): OnnxThread {
  const state = new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT));
  const worker = new Worker(new URL("./onnx-worker.mjs", import.meta.url), {
    name: "onnx",
    // without the options of the process, such as a TypeScript loader
    execArgv: [],
    resourceLimits: threadLimits,
    workerData: { state },
  });
  runtimes.add(state);
  const ended = new Promise<void>((resolve) => {
    worker.once("exit", () => {
      runtimes.delete(state);
      resolve();
    });
  });
  return { worker, ended };
}

/** Two flags per thread: whether it is inside the runtime, and whether it must not enter it again. */
const runtimes = new Set<Int32Array<SharedArrayBuffer>>();

/** Maximum time in milliseconds for which the process exit waits for a run. */
const leaveTimeoutMs = 20_000;

/**
 * Waits for the runs in progress, at most one per thread. Terminating a thread inside ONNX Runtime aborts the process (exit code 134, "terminate called after throwing an instance of 'Napi::Error'").
 */
function leaveRuntimes(): void {
  for (const state of runtimes) Atomics.store(state, 1, 1);
  for (const state of runtimes) Atomics.wait(state, 0, 1, leaveTimeoutMs);
}
process.on("exit", leaveRuntimes);
