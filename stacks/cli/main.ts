import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { isUserError } from "./user-error.ts";

/** Exit codes of every command: 0 all good, 1 a check failed, 2 wrong usage or settings. */
const exitUsage = 2;

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

// whoever reads has seen enough, like `head`: what is under way ends as it would have
for (const output of [process.stdout, process.stderr]) {
  output.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
  });
}

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

const asked = commands[process.argv[2] ?? ""];
for (const register of asked === undefined ? Object.values(commands) : [asked]) {
  await register(program);
}
// subcommands copy the override only when they are made by `program.command()`: set it on all
const overrideAll = (command: Command): void => {
  command.exitOverride();
  for (const sub of command.commands) overrideAll(sub);
};
overrideAll(program);

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : exitUsage;
  } else {
    const message = error instanceof Error ? error.message : String(error);
    console.error(`clipstack: ${message}`);
    if (process.env.CLIPSTACK_DEBUG !== undefined) console.error(error);
    process.exitCode = isUserError(error) ? exitUsage : 1;
  }
}
