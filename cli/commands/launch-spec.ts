import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { type Command, Option } from "commander";
import { readArtefact } from "../../artefact/artefact.ts";
import { deployedConfigName } from "../../contract/model-config.ts";
import { launchSpec } from "../launch/launch-spec.ts";
import type { ChangedConfig } from "../launch/launch-spec-types.ts";
import { formats } from "../launch/launch-text.ts";
import { synthesizedFile } from "../shared/artefact.ts";
import { withFileErrors } from "../shared/write-output.ts";

interface LaunchArguments {
  readonly format: keyof typeof formats;
  readonly image?: string;
  readonly configs?: string;
  readonly synth: boolean;
}

/** `clipstack launch-spec`: prints an environment as one container. */
export function registerLaunchSpec(program: Command): void {
  program
    .command("launch-spec")
    .argument("<environment>", "environment of the stack single-gpu")
    .addOption(
      new Option("--format <format>", "output format")
        .choices(Object.keys(formats))
        .default("text"),
    )
    .option("--image <name>", "name of the all-in-one image in a registry")
    .option(
      "--configs <folder>",
      "folder for changed model configurations, which the container mounts",
    )
    .option("--no-synth", "use the existing output in cdktf.out")
    .addHelpText(
      "after",
      `
Image, ports, variables, GPU and volumes are those of the synthesized environment. The 'docker run' is for a host with
Docker; a marketplace (Vast.ai, Runpod) has its own form for the same values and lists the published ports.

Examples:
  $ npx clipstack launch-spec single-gpu
  $ npx clipstack launch-spec single-gpu --image ghcr.io/example/clipstack/all-in-one:0.1.0 --format json
  $ npx clipstack launch-spec single-gpu --format docker-run | sh

Exit codes: 0 printed, 2 wrong usage or settings, or the environment cannot be one container.`,
    )
    .action(print);
}

async function print(name: string, args: LaunchArguments): Promise<void> {
  const file = await synthesizedFile(name, args.synth);
  const artefact = { ...readArtefact(file.file, file.displayPath), file: file.file };
  const { spec, changed } = launchSpec(artefact, readFileSync(file.file, "utf8"), args);
  if (args.configs !== undefined) writeConfigs(resolve(args.configs), changed);
  // stdout is for programs
  if (args.format !== "text") for (const note of spec.notes) console.error(`clipstack: ${note}`);
  console.log(formats[args.format](spec));
}

function writeConfigs(folder: string, changed: readonly ChangedConfig[]): void {
  withFileErrors(`--configs ${folder}`, "written", () => {
    for (const { model, text } of changed) {
      mkdirSync(join(folder, model), { recursive: true });
      writeFileSync(join(folder, model, `${deployedConfigName}.pbtxt`), text);
    }
  });
}
