import { setImmediate as nextTurn } from "node:timers/promises";

/** How long work may hold the event loop in one go, in milliseconds. */
const turnMs = 2;

/** Divides long work into turns, so that other requests are answered in between. */
export class Turns {
  #since = performance.now();

  /** Whether the turn is over: then `await` {@link next}. Ask between pieces of some microseconds. */
  get over(): boolean {
    return performance.now() - this.#since > turnMs;
  }

  async next(): Promise<void> {
    await nextTurn();
    this.#since = performance.now();
  }
}
