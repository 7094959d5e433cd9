import { startSpareThread } from "../inference/session/onnx-thread.ts";

/**
 * Process of the server image. Without arguments it is the embed server, configured by environment variables;
 * `tritonserver …` is the Triton emulator, with Triton's options; `bulk` is a worker of a bulk job, configured by environment variables. Four jobs run once and exit: `check-weights …` verifies a
 * folder of weights, `fetch-weights …` downloads them first, `apply-config …` applies a model configuration to a Triton server, and
 * `deploy-version …` adds a version of a model.
 */
const [role, ...args] = process.argv.slice(2);

// Process 1 of a container ignores signals that have no handler: a stop while the program loads would otherwise end with SIGKILL.
const stopWhileLoading = () => process.exit(128 + 15);
process.on("SIGTERM", stopWhileLoading);

switch (role) {
  case undefined: {
    // a gateway runs no model
    if (process.env.BACKEND !== "triton") startSpareThread();
    const { runEmbedServer } = await import("./server/embed-server.ts");
    process.off("SIGTERM", stopWhileLoading); // it has its own handler
    await runEmbedServer(process.env);
    break;
  }
  case "tritonserver": {
    const { runTritonEmulator } = await import("../emulator/triton-emulator.ts");
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
    const onProgress = (line: string) => void process.stderr.write(`${line}\n`);
    await runOnce(async () => await fetchWeights(readFetchWeightsArguments(args), onProgress));
    break;
  }
  case "apply-config": {
    const { applyConfig, readApplyConfigArguments } = await import("./jobs/apply-config.ts");
    const { runOnce } = await import("./jobs/role-arguments.ts");
    await runOnce(async () => await applyConfig(readApplyConfigArguments(args, process.env)));
    break;
  }
  case "deploy-version": {
    const { deployVersion, readDeployVersionArguments } = await import("./jobs/deploy-version.ts");
    const { runOnce } = await import("./jobs/role-arguments.ts");
    await runOnce(async () => await deployVersion(readDeployVersionArguments(args, process.env)));
    break;
  }
  case "bulk": {
    const { runWorkerProcess } = await import("../bulk/worker-process.ts");
    process.off("SIGTERM", stopWhileLoading); // it has its own handler
    await runWorkerProcess(process.env);
    break;
  }
  default:
    process.stderr.write(
      `the first argument must be tritonserver, bulk, check-weights, fetch-weights, apply-config or deploy-version, got '${role}'\n`,
    );
    process.exit(2);
}
