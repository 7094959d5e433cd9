import { CommanderError } from "commander";
import { messageOf, UserError } from "../contract/user-error.ts";

/** Exit codes of every command: 0 success, 1 a check failed, 2 usage or settings error. */
const exitUsage = 2;

/**
 * Runs a command in this process. Errors are printed as one line.
 *
 * @param args - Arguments after the program's name.
 * @returns Exit code; also set as `process.exitCode`.
 */
export async function exitCodeOf(
  args: readonly string[],
  run: (args: string[]) => Promise<unknown>,
): Promise<number> {
  // as in Terraform, 2 means that the plan has changes, so every error is 1
  const isDetailed = args.includes("--detailed-exitcode");
  process.exitCode = 0;
  try {
    await run([...args]);
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : isDetailed ? 1 : exitUsage;
    } else {
      const message = messageOf(error);
      console.error(`clipstack: ${message}`);
      if (process.env.CLIPSTACK_DEBUG !== undefined) console.error(error);
      process.exitCode = isUserError(error) && !isDetailed ? exitUsage : 1;
    }
  }
  return Number(process.exitCode);
}

/** Returns whether the user caused the error, for example with a model file that cannot be loaded. */
export function isUserError(error: unknown): boolean {
  return (
    error instanceof UserError ||
    (error instanceof Error && "code" in error && error.code === "model")
  );
}
