/** 128 + SIGINT, as a shell counts. */
const exitInterrupted = 130;

/** The run was stopped from outside; everything that it had started has ended. */
export class Interrupted extends Error {
  override readonly name = "Interrupted";
  readonly exitCode = exitInterrupted;
}

/** The first signal asks everything to stop; the second does not wait for it. */
export function onInterrupt(): { readonly signal: AbortSignal; readonly remove: () => void } {
  const controller = new AbortController();
  const handle = (): void => {
    if (controller.signal.aborted) process.exit(exitInterrupted);
    controller.abort();
  };
  process.on("SIGINT", handle);
  process.on("SIGTERM", handle);
  return {
    signal: controller.signal,
    remove() {
      process.removeListener("SIGINT", handle);
      process.removeListener("SIGTERM", handle);
    },
  };
}
