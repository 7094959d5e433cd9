#!/usr/bin/env node
import "../contract/require-node.mjs";
import "./exit-with-parent.mjs";
import { runCommand } from "./run-command.ts";

// a reader such as `head` may close the pipe early; the command still ends with its own exit code
for (const output of [process.stdout, process.stderr]) {
  output.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

await runCommand(process.argv.slice(2));
