// Tells the thread that started it when a time has come, to about 0.1 ms: a timer of Node is up to 2 ms late, and waiting
// for it in a loop would take a core from the server. Plain JavaScript, so that the thread starts without a loader.
import { parentPort, workerData } from "node:worker_threads";

/** @type {{ next: Float64Array<SharedArrayBuffer>, state: Int32Array<SharedArrayBuffer> }} */
const { next, state } = workerData;

for (;;) {
  const seen = Atomics.load(state, 0);
  const waitMs = next[0] - Number(process.hrtime.bigint()) / 1e6;
  if (waitMs > 0) {
    Atomics.wait(state, 0, seen, waitMs);
    continue;
  }
  parentPort.postMessage(undefined);
  // until the other thread has said what comes next
  Atomics.wait(state, 0, seen);
}
