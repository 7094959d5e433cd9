import type { Command } from "commander";
import { lastLogLines, waitUntilHealthy } from "../host/container-health.ts";
import { Docker, DockerError } from "../host/docker-command.ts";
import { interruptible } from "../shared/interruptible.ts";
import { wholeNumber } from "../shared/option-values.ts";

interface WaitArguments {
  readonly docker?: string;
  readonly timeout: number;
  readonly lines: number;
}

/** Registers `clipstack wait-healthy`, which a deployment runs for each container. */
export function registerWaitHealthy(program: Command): void {
  program
    .command("wait-healthy")
    .argument("<container>", "name or id")
    .option("--docker <endpoint>", "Docker endpoint (default: DOCKER_HOST, or this machine's)")
    .option("--timeout <seconds>", "maximum time to wait", wholeNumber(1, 86_400), 150)
    .option(
      "--lines <number>",
      "number of log lines to print on failure",
      wholeNumber(1, 86_400),
      20,
    )
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack wait-healthy single-gpu-embed
  $ npx clipstack wait-healthy single-gpu-triton-trt --docker ssh://me@gpu-1 --timeout 600

Exit codes: 0 healthy, 1 not healthy, 2 usage error.`,
    )
    .action(waitHealthy);
}

const localEndpoint = "unix:///var/run/docker.sock";

async function waitHealthy(container: string, args: WaitArguments): Promise<void> {
  const endpoint = args.docker ?? process.env.DOCKER_HOST ?? localEndpoint;
  await interruptible("", async ({ signal }) => {
    const docker = new Docker(endpoint, signal);
    try {
      const failure = await waitUntilHealthy({
        docker,
        container,
        timeoutMs: args.timeout * 1000,
        // over ssh each read opens a connection
        intervalMs: endpoint.startsWith("ssh://") ? 3_000 : 500,
        signal,
        onState: (text, elapsedMs) =>
          console.log(`${container}: ${text} (${(elapsedMs / 1000).toFixed(1)} s)`),
      });
      if (failure === undefined) return;
      process.exitCode = 1;
      console.log(`${container} ${failure}`);
      const lines = await lastLogLines(docker, container, args.lines);
      if (lines.length > 0) console.log("last log lines:");
      for (const line of lines) console.log(`  ${line}`);
    } catch (error) {
      if (!(error instanceof DockerError)) throw error;
      const { message, fix } = error.problem;
      console.log(`${message}\n  fix: ${fix}`);
      process.exitCode = 1;
    }
  });
}
