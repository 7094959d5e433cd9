import { Worker } from "node:worker_threads";
import { threadLimits } from "../thread-limits.ts";

/**
 * The thread of a model session. It imports next to nothing, so that a program can start the thread before it loads the rest
 * of itself: the thread loads ONNX Runtime meanwhile.
 */
export interface OnnxThread {
  readonly worker: Worker;
  /** Ends with the thread. */
  readonly ended: Promise<void>;
}

// The official builds report model and machine to Microsoft unless this is set before the library is loaded. It must be
// the environment of the process: a worker's `process.env` is a copy that native code does not see.
process.env.ORT_DISABLE_TELEMETRY ??= "1";

let spare: OnnxThread | undefined;

/** Starts the thread of the next session now. It keeps no process alive. */
export function startSpareThread(): void {
  if (spare !== undefined) return;
  const thread = startThread();
  thread.worker.unref();
  // why it failed is told by the one that is started in its place
  thread.worker.on("error", () => {});
  spare = thread;
  void thread.ended.then(() => {
    if (spare === thread) spare = undefined;
  });
}

/** The thread that was started before, else a new one. */
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
    // flags of the process, such as a TypeScript loader, are of no use to the thread
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

/** Of each thread: whether it is in the runtime, and whether it must not enter it any more. */
const runtimes = new Set<Int32Array<SharedArrayBuffer>>();

/** How long the end of the process waits for a run, in milliseconds. */
const leaveTimeoutMs = 20_000;

/**
 * Wait for the runs in progress, at most one in each thread. A thread that is ended while it is in ONNX Runtime aborts
 * the process (exit code 134, "terminate called after throwing an instance of 'Napi::Error'").
 */
function leaveRuntimes(): void {
  for (const state of runtimes) Atomics.store(state, 1, 1);
  for (const state of runtimes) Atomics.wait(state, 0, 1, leaveTimeoutMs);
}
process.on("exit", leaveRuntimes);
