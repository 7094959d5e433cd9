import { startSpareThread } from "../inference/session/onnx-thread.ts";

/**
 * The process in the container. Without arguments it is the embed server, with settings from the environment;
 * `tritonserver …` is the server that stands where a Triton will stand, with Triton's options. Three roles do one thing and
 * end: `check-weights …` makes a folder of weights ready, `fetch-weights …` brings them there first, `apply-config …` gives a
 * Triton another model configuration.
 */
const [role, ...args] = process.argv.slice(2);

// Process 1 of a container gets no signal that it does not listen to: a stop while the program loads would end in a kill.
const stopWhileLoading = () => process.exit(128 + 15);
process.on("SIGTERM", stopWhileLoading);

switch (role) {
  case undefined: {
    // a gateway needs none
    if (process.env.BACKEND !== "triton") startSpareThread();
    const { runEmbedServer } = await import("./embed/embed-server.ts");
    process.off("SIGTERM", stopWhileLoading); // it listens itself
    await runEmbedServer(process.env);
    break;
  }
  case "tritonserver": {
    const { runTritonEmulator } = await import("./emulator/triton-emulator.ts");
    process.off("SIGTERM", stopWhileLoading);
    await runTritonEmulator(args);
    break;
  }
  case "check-weights": {
    const { checkWeights, readCheckWeightsArguments } = await import("./jobs/check-weights.ts");
    const { runOnce } = await import("./jobs/role-arguments.ts");
    await runOnce(async () => await checkWeights(readCheckWeightsArguments(args)));
    break;
  }
  case "fetch-weights": {
    const { fetchWeights, readFetchWeightsArguments } = await import("./jobs/fetch-weights.ts");
    const { runOnce } = await import("./jobs/role-arguments.ts");
    const tell = (line: string) => void process.stderr.write(`${line}\n`);
    await runOnce(async () => await fetchWeights(readFetchWeightsArguments(args), tell));
    break;
  }
  case "apply-config": {
    const { applyConfig, readApplyConfigArguments } = await import("./jobs/apply-config.ts");
    const { runOnce } = await import("./jobs/role-arguments.ts");
    await runOnce(async () => await applyConfig(readApplyConfigArguments(args, process.env)));
    break;
  }
  default:
    process.stderr.write(
      `expected no argument, or tritonserver, check-weights, fetch-weights or apply-config and its options, got '${role}'\n`,
    );
    process.exit(2);
}
