import { type Interrupt, Interrupted, onInterrupt } from "../../artefact/interrupt.ts";

/**
 * Runs work that ends on SIGINT and SIGTERM. Interrupted work prints one line and has exit code 130.
 *
 * @param outcome - Rest of the line, unless the error states it: `the export was stopped`.
 * @returns undefined after an interruption.
 */
export async function interruptible<T>(
  outcome: string,
  run: (interrupt: Interrupt) => Promise<T>,
): Promise<T | undefined> {
  const interrupt = onInterrupt();
  try {
    return await run(interrupt);
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
    const stated = error instanceof Interrupted ? error.message : "";
    console.error(`clipstack: ${["interrupted", stated || outcome].filter(Boolean).join("; ")}`);
    process.exitCode = new Interrupted().exitCode;
    return undefined;
  } finally {
    interrupt.remove();
  }
}
