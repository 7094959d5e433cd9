#!/usr/bin/env node
import "../contract/require-node.mjs";
import { Command } from "commander";
import { registerReview } from "./commands/review.ts";
import { exitCodeOf } from "./exit-code.ts";

/** The program of the package `@clipstack/review`: `clipstack review` alone. */
await exitCodeOf(process.argv.slice(2), async (args) => {
  const program = new Command("clipstack").exitOverride();
  registerReview(program);
  await program.parseAsync(["review", ...args], { from: "user" });
});
