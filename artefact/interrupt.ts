/** 128 + SIGINT, the convention of shells. */
const exitInterrupted = 130;

/** The run was interrupted, and every process that it had started has ended. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly exitCode = exitInterrupted;
}

/** Ignores output errors after the terminal was closed, so that cleanup continues. */
function ignoreClosedTerminal(error: NodeJS.ErrnoException): void {
  if (error.code !== "EPIPE" && error.code !== "EIO") throw error;
}

export interface Interrupt {
  readonly signal: AbortSignal;
  /**
   * Marks the start of work that the second signal must not cut off: it prints a warning, and the third signal exits.
   *
   * @param work - Description for the warning: `restoring …`.
   * @returns Function that marks its end.
   */
  readonly hold: (work: string) => () => void;
  readonly remove: () => void;
}

/**
 * Handles interrupts: the first signal aborts, and the second exits at once. SIGHUP, which a closed terminal may send
 * repeatedly, only aborts.
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
      console.error(`clipstack: ${work}: not finished; press Ctrl-C again to skip it`);
      return;
    }
    controller.abort();
  };
  const hangUp = (): void => controller.abort();
  process.on("SIGINT", handle);
  process.on("SIGTERM", handle);
  process.on("SIGHUP", hangUp);
  process.stderr.on("error", ignoreClosedTerminal);
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
      process.stderr.removeListener("error", ignoreClosedTerminal);
    },
  };
}
