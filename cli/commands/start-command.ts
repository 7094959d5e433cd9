import type { Command } from "commander";
import { addRunOptions, type RunArguments, runVerify } from "./verify.ts";

/** Registers `clipstack start`, which `npm start` runs after installing packages: verifies all environments. */
export function registerStart(program: Command): void {
  addRunOptions(program.command("start"))
    .addHelpText(
      "after",
      `
Examples:
  $ npm start
  $ npm start -- --port-offset 10000
  $ npx clipstack start --weights tiny --seconds 1

Exit codes: 0 success, 1 a check failed, 2 usage or settings error.`,
    )
    .action(async (args: RunArguments) => {
      await runVerify([], { ...args, target: "simulation", synth: true, skipUnavailable: true });
      if (process.exitCode === 0 && !args.json) console.log(nextSteps);
    });
}

const nextSteps = `
Next:
  edit environments/single-gpu.yaml        GPU, ports, services; all settings: docs/settings.md
  npx clipstack verify single-gpu          verify one environment again
  npx clipstack serve                      embed server with a web page: http://127.0.0.1:8002
  npx cdktf synth                          Terraform JSON in cdktf.out/stacks/
  npx cdktf diff single-gpu                changes of a deployment (needs Terraform and the GPU host)`;
