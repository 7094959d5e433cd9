import { createInterface } from "node:readline/promises";
import { Argument, type Command } from "commander";
import { Interrupted } from "../../artefact/interrupt.ts";
import { UserError } from "../../contract/user-error.ts";
import { type HostDrillName, hostDrillNames } from "../../verify/drills/drill-record.ts";
import type { HostTarget } from "../../verify/drills/host-run.ts";
import { hostDrills } from "../../verify/drills/registry.ts";
import { deployedEnvironments } from "../cluster/deployed-environments.ts";
import { addDrillOutput, type DrillOutput, outputDrill } from "../prepare/drill-output.ts";
import { drillHost, hostTarget } from "../prepare/host-drill.ts";
import { environmentFiles } from "../shared/artefact.ts";
import { numberUpTo, portOffset, wholeNumber } from "../shared/option-values.ts";

/** Requests per second that two cores sustain with ViT-B/32 in FP32. */
const defaultRate = 5;
const defaultSeconds = 20;

interface DrillArguments extends DrillOutput {
  readonly rate: number;
  readonly seconds: number;
  readonly service?: string;
  readonly portOffset: number;
  readonly yes?: true;
}

/** Registers `clipstack drill`: drills on an environment that is deployed on a Docker host. */
export function registerDrill(program: Command): void {
  const lines = Object.values(hostDrills).map(
    ({ name, question }) => `  ${name.padEnd(8)} ${question}`,
  );
  const command = program
    .command("drill")
    .argument("<environment>", "environment on a Docker host")
    .addArgument(new Argument("<name>", "drill").choices(hostDrillNames))
    .option("--rate <number>", "requests per second", numberUpTo(100), defaultRate)
    .option(
      "--seconds <number>",
      "duration of a disturbance that the drill ends itself",
      wholeNumber(1, 600),
      defaultSeconds,
    )
    .option(
      "--service <name>",
      "service to disturb (default: the first Triton server behind the gateway, or the embed server)",
    )
    .option("--port-offset <number>", "added to the local ports of an ssh tunnel", portOffset, 0)
    .option("--yes", "start without confirmation");
  addDrillOutput(command)
    .addHelpText(
      "after",
      `
A drill disturbs one container of a running deployment while sample images are sent to the embed server. It restores the
environment, also after Ctrl-C, and writes a record to bench/reports. Drills on a cluster: npx clipstack k8s

Drills:
${lines.join("\n")}

Examples:
  $ npx clipstack drill single-gpu kill
  $ npx clipstack drill multi-gpu-4x freeze --service triton-2 --seconds 10 --yes

Exit codes: 0 success, 1 a check failed, 2 usage or settings error, 130 interrupted.`,
    )
    .action(runNamed);
}

async function runNamed(
  environment: string,
  name: HostDrillName,
  args: DrillArguments,
): Promise<void> {
  const drill = hostDrills[name];
  await outputDrill(args, async ({ signal }) => {
    const onNotice = (line: string) => console.error(line);
    const files = environmentFiles([environment]);
    const [deployed] = await deployedEnvironments([environment], files, {
      portOffset: args.portOffset,
      signal,
      onNotice,
    });
    if (deployed === undefined || deployed.deployed.namespace !== undefined) {
      throw new UserError(
        `environment must be on a Docker host, got '${environment}' on a cluster: see npx clipstack k8s --help`,
      );
    }
    const access = await deployed.openAccess();
    try {
      const target = hostTarget(deployed, access, args.service);
      console.error(planText(target, drill.help));
      if (!args.yes) await confirm(signal);
      return await drillHost(drill, {
        target,
        ratePerSecond: args.rate,
        seconds: args.seconds,
        ...(deployed.apiKey !== undefined && { apiKey: deployed.apiKey }),
        signal,
        onStep: onNotice,
      });
    } finally {
      await access.close();
    }
  });
}

function planText(
  { environment, endpoint, disturbed, entry, url }: HostTarget,
  help: string,
): string {
  return `${environment} on ${endpoint}: service ${disturbed.name}, container ${disturbed.container}
${help}
Requests go to ${entry.name} at ${url}.`;
}

async function confirm(signal: AbortSignal): Promise<void> {
  if (!process.stdin.isTTY) {
    throw new UserError(
      "--yes must be given without a terminal, because a drill disturbs a running deployment",
    );
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // the terminal interface receives Ctrl-C instead of the process
  terminal.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
  try {
    const answer = await terminal.question("Continue? (yes/no) ", { signal });
    if (answer.trim() !== "yes") throw new UserError(`the answer must be yes, got '${answer}'`);
  } catch (error) {
    if (signal.aborted) throw new Interrupted("nothing was changed", { cause: error });
    throw error;
  } finally {
    terminal.close();
  }
}
