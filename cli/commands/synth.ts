import { relative } from "node:path";
import type { Command } from "commander";
import { synthCommand } from "../../stacks/synth-command.ts";
import { environmentsFolder } from "../shared/project.ts";

interface SynthArguments {
  readonly environments?: string;
  readonly skipInvalid: boolean;
}

/** Registers `clipstack synth`, the app of `cdktf.json` in a project with the installed package. */
export function registerSynth(program: Command): void {
  program
    .command("synth")
    .option("--environments <folder>", "folder of the environments (default: environments)")
    .option(
      "--skip-invalid",
      "exit with 0 if at least one environment is valid, so that cdktf can deploy it",
      false,
    )
    .addHelpText(
      "after",
      `
Writes the Terraform JSON of every environment to cdktf.out, or the folder in CDKTF_OUTDIR.

Examples:
  $ npx clipstack synth
  $ npx clipstack synth --environments ../my-environments

Exit codes: 0 success, 2 wrong usage, or an environment with errors; the others are written.`,
    )
    .action(async ({ environments, skipInvalid }: SynthArguments) => {
      process.exitCode = await synthCommand({
        args: [
          ...(environments === undefined ? [] : ["--environments", environments]),
          ...(skipInvalid ? ["--skip-invalid"] : []),
        ],
        env: process.env,
        defaultFolder: relative("", environmentsFolder()),
        output: console,
      });
    });
}
