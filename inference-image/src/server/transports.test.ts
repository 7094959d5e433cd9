import { afterAll, beforeAll, describe } from "vitest";
import { openclipVitB32 } from "../contract/model-signature.ts";
import type { Fp32Tensor } from "../contract/tensor.ts";
import { openGrpcTransport } from "../triton/grpc-transport.ts";
import { openHttpTransport } from "../triton/http-transport.ts";
import { openInMemoryTransport } from "../triton/in-memory-transport.ts";
import { describeTransport } from "../triton/transport.suite.ts";
import { type TestRepository, testRepository } from "./test-repository.ts";
import { type RunningTritonServer, startTritonServer } from "./triton-server.ts";

describe("against this project's server", () => {
  let repository: TestRepository;
  let server: RunningTritonServer;
  beforeAll(async () => {
    repository = await testRepository();
    server = await startTritonServer(repository.flags(), { log: () => {} });
  });
  afterAll(async () => {
    await server.stop();
    await repository.remove();
  });

  for (const encoding of ["binary", "json"] as const) {
    const at = (port: number) => openHttpTransport({ url: `http://127.0.0.1:${port}`, encoding });
    describeTransport({
      name: `HTTP, ${encoding}`,
      model: openclipVitB32,
      open: () => at(server.ports.http),
      openSilent: at,
      openUnreachable: at,
    });
  }

  const at = (port: number, channels = 1) =>
    openGrpcTransport({ target: `127.0.0.1:${port}`, channels });
  describeTransport({
    name: "gRPC",
    model: openclipVitB32,
    open: () => at(server.ports.grpc),
    openSilent: at,
    openUnreachable: at,
  });
  describeTransport({
    name: "gRPC, two channels",
    model: openclipVitB32,
    open: () => at(server.ports.grpc, 2),
    openSilent: (port) => at(port, 2),
    openUnreachable: (port) => at(port, 2),
  });
});

describe("in memory", () => {
  const width = openclipVitB32.outputs[0].dims[0];
  /** Each row is made of the beginning of its image. */
  const infer = ([image]: readonly unknown[]) => {
    const { shape, data } = image as Fp32Tensor;
    const [items = 0] = shape;
    const size = data.length / items;
    const rows = Float32Array.from(
      { length: items * width },
      (_, index) => data[Math.floor(index / width) * size + (index % width)]!,
    );
    return [{ name: "embedding", dataType: "FP32", shape: [items, width], data: rows } as const];
  };
  describeTransport({
    name: "in-memory",
    model: openclipVitB32,
    open: () => openInMemoryTransport({ models: [{ signature: openclipVitB32, infer }] }),
    openSilent: () => openInMemoryTransport({ models: [], state: () => "silent" }),
    openUnreachable: () => openInMemoryTransport({ models: [], state: () => "down" }),
  });
});
