/** Maximum time for which the work of all requests may block the event loop, in milliseconds. */
const sliceMs = 2;

/** Work that waits for a time slice, in order of arrival. */
const waiting: (() => void)[] = [];
let sliceStartedAt = Number.NEGATIVE_INFINITY;

/** Starts one slice per iteration of the event loop: sockets and timers are served before the next. */
function startSlice(): void {
  sliceStartedAt = performance.now();
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(startSlice);
}

/**
 * Divides long work into time slices, so that other requests are served in between. Slices are shared by all requests: many large
 * bodies that arrive together get them in turn.
 */
export const timeSlice = {
  /** Whether the slice is over and the work must await {@link next}. Checked between steps of some microseconds. */
  get exhausted(): boolean {
    return performance.now() - sliceStartedAt > sliceMs;
  },

  next(): Promise<void> {
    return new Promise((resolve) => {
      waiting.push(resolve);
      if (waiting.length === 1) setImmediate(startSlice);
    });
  },
};
