import { readFileSync } from "node:fs";
import { Command } from "commander";

/** Commands by name. A module is loaded only when its command, or the overview, is asked for. */
const commands: Readonly<Record<string, (program: Command) => Promise<void>>> = {
  scan: async (program) => (await import("./scan-command.ts")).registerScan(program),
  embed: async (program) => (await import("./embed-command.ts")).registerEmbed(program),
  group: async (program) => (await import("./group-command.ts")).registerGroup(program),
  review: async (program) => (await import("./review-command.ts")).registerReview(program),
  restore: async (program) => (await import("./restore-command.ts")).registerRestore(program),
  demo: async (program) => (await import("./demo-command.ts")).registerDemo(program),
  evaluate: async (program) => (await import("./evaluate-command.ts")).registerEvaluate(program),
  "make-photos": async (program) =>
    (await import("./evaluate-command.ts")).registerMakePhotos(program),
};

const { version }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("./package.json", import.meta.url), "utf8"),
);

/**
 * The command line, not run: `main.ts` parses with it, and a test of the documentation too.
 *
 * @param name - First word of what was asked. Where it is a command, the others are not loaded.
 */
export async function dedupeProgram(name = ""): Promise<Command> {
  const program = new Command("clipstack-dedupe")
    .description("Find near-duplicate photos: scan, embed, group, review.")
    .version(version)
    .showHelpAfterError("(run with --help for usage and examples)")
    .addHelpText(
      "after",
      `
Exit codes: 0 good, 1 something could not be done, 2 wrong usage or settings.

Example:
  $ npx clipstack-dedupe scan ~/Pictures
  $ npx clipstack serve &                     # or any environment that was deployed
  $ npx clipstack-dedupe embed
  $ npx clipstack-dedupe group
  $ npx clipstack-dedupe review               # opens a page on this machine`,
    );

  const asked = commands[name];
  for (const register of asked === undefined ? Object.values(commands) : [asked]) {
    await register(program);
  }
  program.exitOverride();
  for (const command of program.commands) command.exitOverride();
  return program;
}
