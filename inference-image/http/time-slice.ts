/** How long the work of all requests together may hold the event loop in one go, in milliseconds. */
const turnMs = 2;

/** Who waits for a turn, in the order that they asked. */
const waiting: (() => void)[] = [];
let turnStartedAt = Number.NEGATIVE_INFINITY;

/** One turn in each round of the event loop: sockets and timers are looked at before the next. */
function startTurn(): void {
  turnStartedAt = performance.now();
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(startTurn);
}

/**
 * Divides long work into turns, so that other requests are answered in between. Turns are of the process and not of a
 * request: many large bodies that arrive at once take them one after the other.
 */
export const timeSlice = {
  /** Whether the turn is over: then `await` {@link next}. Ask between pieces of some microseconds. */
  get exhausted(): boolean {
    return performance.now() - turnStartedAt > turnMs;
  },

  next(): Promise<void> {
    return new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(startTurn);
    });
  },
};
