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

/**
 * The first signal asks everything to stop; the second does not wait for it. Of a terminal that is closed, which may say so
 * more than once, every signal is a first one.
 */
export function onInterrupt(): { readonly signal: AbortSignal; readonly remove: () => void } {
  const controller = new AbortController();
  const handle = (): void => {
    if (controller.signal.aborted) process.exit(exitInterrupted);
    controller.abort();
  };
  const hangUp = (): void => controller.abort();
  process.on("SIGINT", handle);
  process.on("SIGTERM", handle);
  process.on("SIGHUP", hangUp);
  process.stderr.on("error", ignoreLostReader);
  return {
    signal: controller.signal,
    remove() {
      process.removeListener("SIGINT", handle);
      process.removeListener("SIGTERM", handle);
      process.removeListener("SIGHUP", hangUp);
      process.stderr.removeListener("error", ignoreLostReader);
    },
  };
}
