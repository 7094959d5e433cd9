import { existsSync } from "node:fs";
import type { Command } from "commander";
import { environmentFile, shippedEnvironments } from "../../stacks/settings/environment-files.ts";
import { weightsHint } from "../model/model-option.ts";
import { addRunOptions, type RunArguments } from "../prepare/run-options.ts";
import { runVerify } from "../prepare/run-verify.ts";
import { environmentsFolder } from "../shared/project.ts";

/** Environments that `npm start` verifies with the tiny model, to report within minutes. */
const tinyEnvironments: readonly string[] = ["k8s-gpu", "search"];

/** Returns the shipped environments that still exist. If there are none, all environments are verified. */
function shippedHere(): readonly string[] {
  const folder = environmentsFolder();
  return [...new Set([...shippedEnvironments, ...tinyEnvironments])].filter((name) =>
    existsSync(environmentFile(folder, name)),
  );
}

/** Registers `clipstack start`, which `npm start` runs after installing packages: verifies environments. */
export function registerStart(program: Command): void {
  addRunOptions(
    program
      .command("start")
      .argument(
        "[environment...]",
        `names of environments (default: those shipped; ${tinyEnvironments.join(" and ")} with a tiny model, and a load of 1 s per endpoint)`,
      )
      .addOption(weightsHint()),
  )
    .addHelpText(
      "after",
      `
Examples:
  $ npm start
  $ npm start -- --port-offset 10000
  $ npx clipstack start my-environment
  $ npx clipstack start --weights tiny --seconds 1

Exit codes: 0 success, 1 a check failed, 2 usage or settings error.`,
    )
    .action(async (names: readonly string[], args: RunArguments, command: Command) => {
      const isDefault = (option: string) => command.getOptionValueSource(option) === "default";
      const isQuick = names.length === 0 && isDefault("weights");
      await runVerify(names, {
        ...args,
        unnamed: shippedHere(),
        target: "simulation",
        synth: true,
        skipUnavailable: true,
        ...(isQuick && { tiny: tinyEnvironments }),
        ...(names.length === 0 && isDefault("seconds") && { seconds: 1 }),
      });
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
