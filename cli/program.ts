import { Command } from "commander";
import { nearestOf } from "../contract/issue-lines.ts";
import { packageVersion } from "../model-tools/files/folders.ts";

interface CommandEntry {
  readonly description: string;
  /** Loads the module of the command, which adds it to `program`. */
  readonly register: (program: Command) => Promise<void>;
}

const commands: Readonly<Record<string, CommandEntry>> = {
  init: {
    description: "write the file of a new environment, with every setting and its default",
    register: async (program) => (await import("./commands/init.ts")).registerInit(program),
  },
  synth: {
    description: "write the Terraform JSON of every environment to cdktf.out",
    register: async (program) => (await import("./commands/synth.ts")).registerSynth(program),
  },
  verify: {
    description:
      "check environments: in a local simulation of the synthesized containers, or where they are deployed",
    register: async (program) => (await import("./commands/verify.ts")).registerVerify(program),
  },
  bench: {
    description:
      "measure endpoints under load: throughput, latency, server time, cost; in a local simulation, deployed, or at any address",
    register: async (program) => (await import("./commands/bench.ts")).registerBench(program),
  },
  sweep: {
    description:
      "study an environment: cold start, batch, concurrency, queue delay, protocol, memory, scaling, topology",
    register: async (program) => (await import("./commands/sweep.ts")).registerSweep(program),
  },
  tune: {
    description:
      "search the settings with the highest rate within an SLO, and write them into the environment file",
    register: async (program) => (await import("./commands/tune.ts")).registerTune(program),
  },
  report: {
    description: "render a saved record of bench, sweep or verify",
    register: async (program) => (await import("./commands/report.ts")).registerReport(program),
  },
  compare: {
    description: "compare two records of bench or sweep: ratios with confidence intervals",
    register: async (program) => (await import("./commands/compare.ts")).registerCompare(program),
  },
  review: {
    description:
      "review a plan: actions, impact, cost and exposure, as a comment for a pull request",
    register: async (program) => (await import("./commands/review.ts")).registerReview(program),
  },
  drill: {
    description:
      "drills on a Docker host: kill or freeze a server, fill its queue, memory or disk, corrupt a model file, expire a certificate",
    register: async (program) => (await import("./commands/drill.ts")).registerDrill(program),
  },
  k8s: {
    description: "drills on a cluster: rolling update, autoscaler, PodDisruptionBudget, quota",
    register: async (program) => (await import("./commands/k8s.ts")).registerK8s(program),
  },
  canary: {
    description:
      "try new settings on a share of a cluster's requests, then upgrade the release or roll back",
    register: async (program) => (await import("./commands/canary.ts")).registerCanary(program),
  },
  doctor: {
    description:
      "check the host or cluster of an environment for everything that a deployment requires",
    register: async (program) => (await import("./commands/doctor.ts")).registerDoctor(program),
  },
  "launch-spec": {
    description:
      "print an environment as one container of the all-in-one image, for hosts that run a single container",
    register: async (program) =>
      (await import("./commands/launch-spec.ts")).registerLaunchSpec(program),
  },
  images: {
    description: "list the images that environments pull, to mirror them",
    register: async (program) => (await import("./commands/images.ts")).registerImages(program),
  },
  tunnel: {
    description: "reach the loopback ports of a GPU host over ssh, until Ctrl-C",
    register: async (program) => (await import("./commands/tunnel.ts")).registerTunnel(program),
  },
  "wait-healthy": {
    description: "wait until a container is healthy; otherwise fail with the end of its log",
    register: async (program) =>
      (await import("./commands/wait-healthy.ts")).registerWaitHealthy(program),
  },
  "wait-rollout": {
    description:
      "wait until the pods of a Deployment are ready; otherwise fail with their events and the end of their logs",
    register: async (program) =>
      (await import("./commands/wait-rollout.ts")).registerWaitRollout(program),
  },
  serve: {
    description: "start one server: the embed server or the Triton emulator",
    register: async (program) => (await import("./commands/serve.ts")).registerServe(program),
  },
  model: {
    description: "generate, fetch, convert, check and deploy the model files that the servers load",
    register: async (program) => (await import("./commands/model.ts")).registerModel(program),
  },
  capacity: {
    description:
      "predict images/s, latency and dollars per 1,000 images of a GPU, payload, link and topology",
    register: async (program) => (await import("./commands/capacity.ts")).registerCapacity(program),
  },
  bulk: {
    description: "embed millions of images into a table: plan, run, resume, verify",
    register: async (program) => (await import("./commands/bulk.ts")).registerBulk(program),
  },
  start: {
    description:
      "generate the model if it is missing, synthesize and verify all environments, and write the report",
    register: async (program) =>
      (await import("./commands/start-command.ts")).registerStart(program),
  },
};

/** Suggests an option whose name contains that of an unknown option. Names with similar spelling are suggested by commander. */
function withNearestOption(text: string, command: Command): string {
  const [, unknown] = /^error: unknown option '(--[^']+)'\n$/.exec(text) ?? [];
  if (unknown === undefined) return text;
  const names = command.options.flatMap(({ long }) => long ?? []);
  return `${text.trimEnd()}${nearestOf(unknown, names)}\n`;
}

export const commandNames: readonly string[] = Object.keys(commands);

/**
 * Command line, not yet parsed.
 *
 * @param loaded - Commands whose modules are loaded; the others have only a name and a description.
 */
export async function clipstackProgram(loaded: readonly string[]): Promise<Command> {
  const program = new Command("clipstack")
    .description("GPU inference infrastructure for image and text embeddings.")
    .version(packageVersion())
    .showHelpAfterError("(run with --help for usage and examples)")
    .configureHelp({ sortSubcommands: true })
    .exitOverride()
    .addHelpText(
      "after",
      "\nExit codes: 0 success, 1 a check failed, 2 wrong usage or settings.\n" +
        "Deploy with the cdktf command line: npx cdktf deploy single-gpu",
    );

  for (const [name, { description, register }] of Object.entries(commands)) {
    if (!loaded.includes(name)) {
      program.command(name).description(description);
      continue;
    }
    await register(program);
    program.commands.find((command) => command.name() === name)?.description(description);
  }
  // only subcommands created with `program.command()` inherit the override: set it on all
  const overrideAll = (command: Command): void => {
    command.exitOverride().configureOutput({
      outputError: (text, write) => write(withNearestOption(text, command)),
    });
    for (const sub of command.commands) overrideAll(sub);
  };
  overrideAll(program);
  return program;
}
