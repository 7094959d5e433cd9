import { CommanderError } from "commander";
import { DedupeError } from "./dedupe-error.ts";
import { dedupeProgram } from "./program.ts";
import { shownName } from "./shown-name.ts";

/** Exit codes: 0 good, 1 something could not be done, 2 wrong usage or settings. */
const exitUsage = 2;

const program = await dedupeProgram(process.argv[2]);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : exitUsage;
  } else {
    console.error(`clipstack-dedupe: ${shownName(lineOf(error))}`);
    if (process.env.CLIPSTACK_DEBUG !== undefined) console.error(error);
    process.exitCode = isUsage(error) ? exitUsage : 1;
  }
}

/** Ours is one line, where no name in it has several. */
function lineOf(error: unknown): string {
  if (error instanceof DedupeError) return error.message;
  return (error instanceof Error ? error.message : String(error)).split("\n")[0] ?? "";
}

function isUsage(error: unknown): boolean {
  if (error instanceof DedupeError) return error.code === "usage";
  return error instanceof Error && "code" in error && error.code === "settings";
}
