import { type Interrupt, Interrupted, onInterrupt } from "../../artefact/interrupt.ts";

/**
 * Runs a command whose programs end on SIGINT and SIGTERM. An interrupted command prints one line and has exit code 130.
 *
 * @param work - Description for the line: `export`.
 */
export async function interruptible(
  work: string,
  run: (interrupt: Interrupt) => Promise<void>,
): Promise<void> {
  const interrupt = onInterrupt();
  try {
    await run(interrupt);
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
    console.error(`clipstack: interrupted; the ${work} was stopped`);
    process.exitCode = new Interrupted().exitCode;
  } finally {
    interrupt.remove();
  }
}
