import { readFileSync } from "node:fs";
import { Command } from "commander";

/** Commands by name. A module is loaded only when its command, or the overview, is asked for. */
const commands: Readonly<Record<string, (program: Command) => Promise<void>>> = {
  verify: async (program) => (await import("./verify.ts")).registerVerify(program),
  bench: async (program) => (await import("./bench.ts")).registerBench(program),
  sweep: async (program) => (await import("./sweep.ts")).registerSweep(program),
  report: async (program) => (await import("./report.ts")).registerReport(program),
  compare: async (program) => (await import("./compare.ts")).registerCompare(program),
  review: async (program) => (await import("./review.ts")).registerReview(program),
  k8s: async (program) => (await import("./k8s.ts")).registerK8s(program),
  doctor: async (program) => (await import("./doctor.ts")).registerDoctor(program),
  "launch-spec": async (program) => (await import("./launch-spec.ts")).registerLaunchSpec(program),
  tunnel: async (program) => (await import("./tunnel.ts")).registerTunnel(program),
  "wait-healthy": async (program) =>
    (await import("./wait-healthy.ts")).registerWaitHealthy(program),
  "wait-rollout": async (program) =>
    (await import("./wait-rollout.ts")).registerWaitRollout(program),
  serve: async (program) => (await import("./serve.ts")).registerServe(program),
  model: async (program) => (await import("./model.ts")).registerModel(program),
  capacity: async (program) => (await import("./capacity.ts")).registerCapacity(program),
  start: async (program) => (await import("./start-command.ts")).registerStart(program),
};

const { version }: { readonly version: string } = JSON.parse(
  readFileSync(new URL("./package.json", import.meta.url), "utf8"),
);

/**
 * The command line, not run: `main.ts` parses with it, and a test of the documentation too.
 *
 * @param name - First word of what was asked. Where it is a command, the others are not loaded.
 */
export async function clipstackProgram(name = ""): Promise<Command> {
  const program = new Command("clipstack")
    .description("GPU inference infrastructure for CLIP image embeddings.")
    .version(version)
    .showHelpAfterError("(run with --help for usage and examples)")
    .configureHelp({ sortSubcommands: true })
    .exitOverride()
    .addHelpText(
      "after",
      "\nExit codes: 0 all good, 1 a check failed, 2 wrong usage or settings.\n" +
        "Deploy with the cdktf command line: npx cdktf deploy single-gpu",
    );

  const asked = commands[name];
  for (const register of asked === undefined ? Object.values(commands) : [asked]) {
    await register(program);
  }
  // subcommands copy the override only when they are made by `program.command()`: set it on all
  const overrideAll = (command: Command): void => {
    command.exitOverride();
    for (const sub of command.commands) overrideAll(sub);
  };
  overrideAll(program);
  return program;
}
