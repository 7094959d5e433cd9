import { CommanderError } from "commander";
import { clipstackProgram } from "./program.ts";
import { isUserError } from "./user-error.ts";

/** Exit codes of every command: 0 all good, 1 a check failed, 2 wrong usage or settings. */
const exitUsage = 2;
/** Terraform's: 2 says that something changes, so whatever is wrong is 1. */
const isDetailed = process.argv.includes("--detailed-exitcode");

// whoever reads has seen enough, like `head`: what is under way ends as it would have
for (const output of [process.stdout, process.stderr]) {
  output.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

const [first = "", second = ""] = process.argv.slice(2);
const program = await clipstackProgram([first === "help" ? second : first]);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : isDetailed ? 1 : exitUsage;
  } else {
    const message = error instanceof Error ? error.message : String(error);
    console.error(`clipstack: ${message}`);
    if (process.env.CLIPSTACK_DEBUG !== undefined) console.error(error);
    process.exitCode = isUserError(error) && !isDetailed ? exitUsage : 1;
  }
}
