import { UserError } from "../../contract/user-error.ts";

/**
 * Run a program of this folder to its end: exit code 0, 1 where `work` gives false, 2 on wrong usage, 130 on Ctrl-C.
 */
export async function runMain(work: (signal: AbortSignal) => Promise<boolean>): Promise<void> {
  const interrupt = new AbortController();
  process.once("SIGINT", () => interrupt.abort());
  process.once("SIGTERM", () => interrupt.abort());
  try {
    process.exitCode = (await work(interrupt.signal)) ? 0 : 1;
  } catch (error) {
    if (interrupt.signal.aborted) process.exitCode = 130;
    else if (error instanceof UserError || isUsageError(error)) {
      console.error(error.message);
      process.exitCode = 2;
    } else throw error;
  }
}

/** @throws {UserError} unless it is a whole number from 1 on. */
export function numberOption(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new UserError(`${name} must be a whole number from 1 on, got '${text}'`);
  }
  return value;
}

/** What `parseArgs` throws. */
function isUsageError(error: unknown): error is Error {
  return (
    error instanceof TypeError && "code" in error && /^ERR_PARSE_ARGS/.test(String(error.code))
  );
}
