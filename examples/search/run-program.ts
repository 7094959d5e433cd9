import { type Command, CommanderError } from "commander";
import { CommandError, printable, reasonOf } from "./report.ts";

/** Runs a command line. Exit codes: 0 success, 1 failed, 2 wrong usage or settings; an error is one line. */
export async function runProgram(program: Command): Promise<void> {
  // a reader such as `head` may close the pipe early
  for (const output of [process.stdout, process.stderr]) {
    output.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
    });
  }
  for (const command of [program, ...program.commands]) command.exitOverride();
  try {
    await program.parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : 2;
      return;
    }
    const message = error instanceof CommandError ? error.message : reasonOf(error);
    console.error(`${program.name()}: ${printable(message)}`);
    const { code } = error as { readonly code?: string };
    process.exitCode = code === "usage" || code === "settings" ? 2 : 1;
  }
}
