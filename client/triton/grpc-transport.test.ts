import { Server, ServerCredentials, type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Tensor } from "../../contract/tensor.ts";
import { openGrpcTransport } from "./grpc-transport.ts";
import { type Transport, TritonError } from "./transport.ts";
import { inferenceService, type ModelInferRequest } from "./wire-grpc.ts";

const options = { timeoutMs: 5_000 };
const image: Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 2],
  data: new Float32Array([1, 2]),
};

/** A client of a server whose ModelInfer responds as the test specifies. */
async function clientOf(
  respond: (request: ModelInferRequest) => object | Partial<ServiceError>,
): Promise<Transport> {
  const server = new Server();
  server.addService(inferenceService, {
    ModelInfer: (
      call: { request: ModelInferRequest },
      callback: (error: object | null, response?: object) => void,
    ) => {
      const result = respond(call.request);
      if ("code" in result) callback(result);
      else callback(null, result);
    },
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, bound) => {
      if (error === null) resolve(bound);
      else reject(error);
    });
  });
  onTestFinished(() => server.forceShutdown());
  const transport = openGrpcTransport({ target: `127.0.0.1:${port}` });
  onTestFinished(() => transport.close());
  return transport;
}

async function failure(call: Promise<unknown>): Promise<TritonError> {
  const error = await call.catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(TritonError);
  return error as TritonError;
}

const output = { name: "embedding", datatype: "FP32", shape: [1, 2] };

test("sends tensors as raw contents and the names of the outputs", async () => {
  let seen: ModelInferRequest | undefined;
  const transport = await clientOf((request) => {
    seen = request;
    return { id: request.id, outputs: [output], raw_output_contents: [Buffer.alloc(8)] };
  });
  await transport.infer("m", [image], { ...options, requestId: "7", outputs: ["embedding"] });
  expect(seen).toMatchObject({
    model_name: "m",
    id: "7",
    inputs: [{ name: "image", datatype: "FP32", shape: [1, 2] }],
    outputs: [{ name: "embedding" }],
    raw_input_contents: [Buffer.from(new Float32Array([1, 2]).buffer)],
  });
});

describe("fails with 'protocol' for a response that violates the protocol", () => {
  test.each(
    Object.entries<object>({
      "[protocol] m: byte size mismatch for 'embedding': FP32 [1,2] has 8 bytes, got 4": {
        id: "7",
        outputs: [output],
        raw_output_contents: [Buffer.alloc(4)],
      },
      "[protocol] m: 2 outputs, but 1 raw_output_contents": {
        id: "7",
        outputs: [output, output],
        raw_output_contents: [Buffer.alloc(8)],
      },
      "[protocol] m: expected the response to request '7', got '8'": {
        id: "8",
        outputs: [output],
        raw_output_contents: [Buffer.alloc(8)],
      },
    }),
  )("%s", async (message, respond) => {
    const transport = await clientOf(() => respond);
    const error = await failure(transport.infer("m", [image], { ...options, requestId: "7" }));
    expect([error.code, error.message]).toEqual(["protocol", message]);
  });
});

describe("maps gRPC statuses to error codes", () => {
  test.each([
    [status.INVALID_ARGUMENT, "rejected"],
    [status.NOT_FOUND, "rejected"],
    [status.INTERNAL, "rejected"],
    [status.UNIMPLEMENTED, "rejected"],
    [status.UNAVAILABLE, "unavailable"],
    [status.DEADLINE_EXCEEDED, "timeout"],
    [status.DATA_LOSS, "protocol"],
  ] as const)("%i", async (code, expected) => {
    const transport = await clientOf(() => ({ code, details: "so it is" }));
    const error = await failure(transport.infer("m", [image], options));
    expect(error.code).toBe(expected);
    if (expected !== "timeout") {
      expect(error.message).toBe(
        `[${expected}] m: so it is (gRPC ${status[code]} from ${transport.target})`,
      );
    }
  });
});

test.each(["http://host:8001", "host", "host:port", ""])("fails to open '%s'", (target) => {
  expect(() => openGrpcTransport({ target })).toThrow(`target must be host:port, got '${target}'`);
});
