import { afterAll, beforeAll, describe } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../client/triton/http-transport.ts";
import { describeTransport } from "../client/triton/transport.suite.ts";
import { defaultModel } from "../contract/models/index.ts";
import { type TritonModel, tritonModel } from "../contract/triton-models.ts";
import { fullTestRepository, type TestRepository } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const fp32Model = tritonModel(defaultModel, "fp32");
const jpegModel = tritonModel(defaultModel, "jpeg");
const u8Model = tritonModel(defaultModel, "u8");

describe("against this project's server", () => {
  let repository: TestRepository;
  let server: RunningTritonEmulator;
  beforeAll(async () => {
    repository = await fullTestRepository();
    server = await startTritonEmulator(repository.flags(), { log: () => {} });
  });
  afterAll(async () => {
    await server.stop();
    await repository.remove();
  });

  const forms: readonly TritonModel[] = [fp32Model, u8Model, jpegModel];
  for (const encoding of ["binary", "json"] as const) {
    const at = (port: number) => openHttpTransport({ url: `http://127.0.0.1:${port}`, encoding });
    for (const model of forms) {
      // image files are binary, and BYTES in JSON must be text
      if (encoding === "json" && model === jpegModel) continue;
      describeTransport({
        name: `HTTP, ${encoding}, ${model.inputs[0]!.dataType}`,
        model,
        open: () => at(server.ports.http),
        openSilent: at,
        openUnreachable: at,
        largestBatch: encoding === "json" ? 8 : model.maxBatchSize, // 16 MiB of JSON
      });
    }
  }

  const at = (port: number) => openGrpcTransport({ target: `127.0.0.1:${port}` });
  for (const model of forms) {
    describeTransport({
      name: `gRPC, ${model.inputs[0]!.dataType}`,
      model,
      open: () => at(server.ports.grpc),
      openSilent: at,
      openUnreachable: at,
    });
  }
});
