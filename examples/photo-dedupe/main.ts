import { CommanderError } from "commander";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { dedupeProgram } from "./program.ts";
import { printable } from "./progress.ts";

/** Exit code for wrong usage or settings; 1: the command failed. */
const exitUsage = 2;

// a reader such as `head` may close the pipe early
for (const output of [process.stdout, process.stderr]) {
  output.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

try {
  await dedupeProgram().parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : exitUsage;
  } else {
    const message = error instanceof DedupeError ? error.message : reasonOf(error);
    console.error(`clipstack-dedupe: ${printable(message)}`);
    const { code } = error as { readonly code?: string };
    process.exitCode = code === "usage" || code === "settings" ? exitUsage : 1;
  }
}
