import { describe } from "vitest";
import { realTritonMissing, startRealTriton } from "../client/triton/test-real-triton.ts";
import { protocolModels, protocolRepository, testProtocol } from "./protocol.suite.ts";

const loaded = protocolModels.map((name) => `--load-model=${name}`);

describe.skipIf(realTritonMissing !== "")(`a real Triton server${realTritonMissing}`, () => {
  testProtocol(async () => {
    const repository = await protocolRepository();
    const triton = await startRealTriton(repository.path, {
      flags: ["--model-control-mode=explicit", ...loaded],
    });
    return {
      url: triton.url,
      grpcTarget: triton.grpcTarget,
      stop: async () => {
        await triton.stop();
        await repository.remove();
      },
    };
  });
});
