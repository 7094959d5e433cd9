import type { Command } from "commander";
import { addRunOptions, type RunArguments, runVerify } from "./verify.ts";

/** `npm start`: from a fresh clone to three verified environments. Packages are installed before this is loaded. */
export function registerStart(program: Command): void {
  addRunOptions(program.command("start"))
    .addHelpText(
      "after",
      `
Examples:
  $ npm start
  $ npm start -- --port-offset 10000
  $ npx clipstack start --model tiny --seconds 1

Exit codes: 0 all good, 1 a check failed, 2 wrong usage or settings.`,
    )
    .action(async (args: RunArguments) => {
      await runVerify([], { ...args, target: "simulation", synth: true });
      if (process.exitCode === 0 && !args.json) console.log(nextSteps);
    });
}

const nextSteps = `
Next:
  edit environments/single-gpu.yaml        GPU, ports, services; docs/settings.md lists all settings
  npx clipstack verify single-gpu          verify one environment again
  npx clipstack serve                      the embed server alone, with a page to try it: http://127.0.0.1:8002
  npx cdktf synth                          Terraform JSON in cdktf.out/stacks/
  npx cdktf diff single-gpu                what a deployment would change (needs Terraform and the GPU host)`;
