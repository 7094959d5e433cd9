import { Worker } from "node:worker_threads";

/** Timer with a precision of about 0.1 ms; Node's own timers are up to 2 ms late. */
export interface Alarm {
  /** @param atMs - On the clock of `clockMs`; infinity: never. */
  set(atMs: number): void;
  close(): Promise<void>;
}

/** @param ring - Called on this thread at the set time; it may set the next time. */
export function startAlarm(ring: () => void): Alarm {
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
  thread.on("message", () => {
    // no further calls until it is set again
    next[0] = Number.POSITIVE_INFINITY;
    ring();
  });
  return {
    set,
    async close() {
      await thread.terminate();
    },
  };
}

/** Minimum time between two calls, in milliseconds, because a call costs more than a request. */
const shortestMs = 0.2;

/**
 * Calls `beat` at a time on the clock of `clockMs`, and then at each time that it returns.
 *
 * @returns Function that ends the calls.
 */
export function startMetronome(firstMs: number, beat: () => number): () => void {
  let atMs = firstMs;
  const alarm = startAlarm(() => {
    atMs = Math.max(beat(), atMs + shortestMs);
    alarm.set(atMs);
  });
  alarm.set(atMs);
  return () => void alarm.close();
}
