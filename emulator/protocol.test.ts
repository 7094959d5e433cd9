import { describe } from "vitest";
import { protocolModels, protocolRepository, testProtocol } from "./protocol.suite.ts";
import { startTritonEmulator } from "./triton-emulator.ts";

describe("the Triton emulator", () => {
  testProtocol(async () => {
    const repository = await protocolRepository();
    const flags = repository.flags({
      "model-control-mode": "explicit",
      "load-model": protocolModels,
      "allow-metrics": false,
    });
    const server = await startTritonEmulator(flags, { log: () => {} });
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
