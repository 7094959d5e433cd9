import { CommanderError } from "commander";
import { dedupeProgram } from "./program.ts";
import { printable, reasonOf } from "./report.ts";

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
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else {
    console.error(`clipstack-dedupe: ${printable(reasonOf(error))}`);
    const { code } = error as { readonly code?: string };
    process.exitCode = code === "usage" || code === "settings" ? 2 : 1;
  }
}
