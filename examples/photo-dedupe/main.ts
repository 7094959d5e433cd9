import { CommanderError } from "commander";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { dedupeProgram } from "./program.ts";
import { printable } from "./progress.ts";

/** Exit codes: 0 success, 1 the command failed, 2 wrong usage or settings. */
const exitUsage = 2;

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
