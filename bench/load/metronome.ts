import { Worker } from "node:worker_threads";

/** Between two calls at least: a call for every request would cost more than the request. */
const shortestMs = 0.2;

/**
 * Call `beat` at a time on the clock of `clockMs`, and then at each time that it returns.
 *
 * @returns Ends it.
 */
export function startMetronome(firstMs: number, beat: () => number): () => void {
  const next = new Float64Array(new SharedArrayBuffer(8));
  const state = new Int32Array(new SharedArrayBuffer(4));
  next[0] = firstMs;
  const thread = new Worker(new URL("./metronome.mjs", import.meta.url), {
    workerData: { next, state },
    execArgv: [],
  });
  thread.on("message", () => {
    next[0] = Math.max(beat(), (next[0] ?? 0) + shortestMs);
    Atomics.add(state, 0, 1);
    Atomics.notify(state, 0);
  });
  return () => void thread.terminate();
}
