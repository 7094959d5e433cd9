/** 128 + SIGINT, as a shell counts. */
const exitInterrupted = 130;

/** The run was stopped from outside; everything that it had started has ended. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly exitCode = exitInterrupted;
}

/** The terminal is gone: nobody reads what is said, and what is under way must go on. */
function ignoreLostReader(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE" && error.code !== "EIO") throw error;
}

export interface Interrupt {
  readonly signal: AbortSignal;
  /**
   * Begins work that the second signal must not cut off: it warns, and the third one does not wait.
   *
   * @param work - In words: `putting back …`.
   * @returns Ends it.
   */
  readonly hold: (work: string) => () => void;
  readonly remove: () => void;
}

/**
 * The first signal asks everything to stop; the second does not wait for it. Of a terminal that is closed, which may say so
 * more than once, every signal is a first one.
 */
export function onInterrupt(): Interrupt {
  const controller = new AbortController();
  const held = new Set<string>();
  let warned = false;
  const handle = (): void => {
    if (controller.signal.aborted) {
      const [work] = held;
      if (work === undefined || warned) process.exit(exitInterrupted);
      warned = true;
      console.error(`clipstack: ${work}: not done yet; Ctrl-C again leaves it as it is`);
      return;
    }
    controller.abort();
  };
  const hangUp = (): void => controller.abort();
  process.on("SIGINT", handle);
  process.on("SIGTERM", handle);
  process.on("SIGHUP", hangUp);
  process.stderr.on("error", ignoreLostReader);
  return {
    signal: controller.signal,
    hold(work) {
      held.add(work);
      return () => void held.delete(work);
    },
    remove() {
      process.removeListener("SIGINT", handle);
      process.removeListener("SIGTERM", handle);
      process.removeListener("SIGHUP", hangUp);
      process.stderr.removeListener("error", ignoreLostReader);
    },
  };
}
