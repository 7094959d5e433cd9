import { describe, expect, test } from "vitest";
import { parseTritonArgs, renderTritonCommand, restrictControl } from "../contract/triton-flags.ts";
import { testModelControl } from "./model-control.suite.ts";
import { testRepository, tinyConfig } from "./test-repository.ts";
import { startTritonEmulator } from "./triton-emulator.ts";

const model = "openclip_vit_b32";
const key = "a:key=with-signs";

describe("the Triton emulator", () => {
  testModelControl(key, model, async () => {
    const repository = await testRepository({ [`${model}/config.pbtxt`]: tinyConfig() });
    const flags = repository.flags({
      "model-control-mode": "explicit",
      "load-model": [model],
      "allow-metrics": false,
      ...restrictControl("key"),
    });
    const server = await startTritonEmulator(flags, { log: () => {}, controlKey: key });
    return {
      url: `http://127.0.0.1:${server.ports.http}`,
      grpcTarget: `127.0.0.1:${server.ports.grpc}`,
      stop: async () => {
        await server.stop();
        await repository.remove();
      },
    };
  });
});

test("parses the options that the constructs render", () => {
  const [, ...args] = renderTritonCommand({
    "model-repository": "/models",
    ...restrictControl("key"),
  });
  expect(parseTritonArgs(args)).toMatchObject(restrictControl("key"));
});

test.each([
  ["model-repository", "must be <apis>:<header>=<value>, got 'model-repository'"],
  [
    "health:key=secret",
    "must be for shared-memory, trace, logging, model-repository, got 'health'",
  ],
])("fails on --http-restricted-api=%s, without the value", (value, message) => {
  expect(() =>
    parseTritonArgs(["--model-repository=/m", `--http-restricted-api=${value}`]),
  ).toThrow(new Error(`--http-restricted-api ${message}`));
});
