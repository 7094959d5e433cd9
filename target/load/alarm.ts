import { Worker } from "node:worker_threads";

/** Minimum time between two calls, in milliseconds, because a call costs more than a request. */
const shortestMs = 0.2;

/**
 * Calls `beat` at a time on the clock of `clockMs`, and then at each time that it returns, with a precision of about 0.1 ms; Node's
 * own timers are up to 2 ms late.
 *
 * @returns Function that ends the calls.
 */
export function startMetronome(firstMs: number, beat: () => number): () => void {
  const next = new Float64Array(new SharedArrayBuffer(8)).fill(Number.POSITIVE_INFINITY);
  const state = new Int32Array(new SharedArrayBuffer(4));
  const thread = new Worker(new URL("./metronome.mjs", import.meta.url), {
    workerData: { next, state },
    execArgv: [],
  });
  const set = (atMs: number): void => {
    next[0] = atMs;
    Atomics.add(state, 0, 1);
    Atomics.notify(state, 0);
  };
  let atMs = firstMs;
  thread.on("message", () => {
    // no further calls until it is set again
    next[0] = Number.POSITIVE_INFINITY;
    atMs = Math.max(beat(), atMs + shortestMs);
    set(atMs);
  });
  set(atMs);
  return () => void thread.terminate();
}
