import { describe } from "vitest";
import { parseTritonArgs } from "../contract/triton-flags.ts";
import { testHotReplacement } from "./hot-replacement.suite.ts";
import { startTritonEmulator } from "./triton-emulator.ts";

describe("the Triton emulator", () => {
  testHotReplacement(async (repository) => {
    const flags = parseTritonArgs([
      `--model-repository=${repository}`,
      "--model-control-mode=explicit",
      "--load-model=*",
      "--allow-metrics=false",
      ...["http", "grpc"].map((name) => `--${name}-address=127.0.0.1`),
    ]);
    const server = await startTritonEmulator(
      { ...flags, "http-port": 0, "grpc-port": 0 },
      { log: () => {} },
    );
    return {
      url: `http://127.0.0.1:${server.ports.http}`,
      grpcTarget: `127.0.0.1:${server.ports.grpc}`,
      stop: () => server.stop(),
    };
  });
});
