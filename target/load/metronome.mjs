// Thread of startMetronome(): posts a message at the set time, with a precision of about 0.1 ms. A busy loop would take a core from
// the server. Plain JavaScript, so that the thread starts without a loader.
import { parentPort, workerData } from "node:worker_threads";

/** @type {{ next: Float64Array<SharedArrayBuffer>, state: Int32Array<SharedArrayBuffer> }} */
const { next, state } = workerData;

for (;;) {
  const version = Atomics.load(state, 0);
  const waitMs = next[0] - Number(process.hrtime.bigint()) / 1e6;
  if (waitMs > 0) {
    Atomics.wait(state, 0, version, waitMs);
    continue;
  }
  parentPort.postMessage(undefined);
  // wait for the next time
  Atomics.wait(state, 0, version);
}
