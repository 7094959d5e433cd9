import { once } from "node:events";
import {
  Client,
  credentials,
  Metadata,
  type Server,
  ServerCredentials,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  healthService,
  type InferenceMethods,
  inferenceService,
  type ModelInferRequest,
  type ModelInferResponse,
  methodOf,
} from "../client/triton/wire-grpc.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { buildOipGrpcServer } from "./oip-grpc.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = "openclip_vit_b32";

let repository: TestRepository;
let registry: ModelRegistry;
let server: Server;
let client: Client;

beforeAll(async () => {
  repository = await testRepository({
    [`${model}/config.pbtxt`]: tinyConfig(),
    "spare/config.pbtxt": tinyConfig({ name: "spare" }),
  });
  registry = await openModelRegistry(
    repository.flags({ "model-control-mode": "explicit", "load-model": [model] }),
    () => {},
  );
  server = buildOipGrpcServer(registry);
  client = await clientOf(server);
});
afterAll(async () => {
  client.close();
  server.forceShutdown();
  await registry.close();
  await repository.remove();
});

function clientOf(target: Server): Promise<Client> {
  return new Promise((resolve, reject) => {
    target.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
      if (error !== null) reject(error);
      else resolve(new Client(`127.0.0.1:${port}`, credentials.createInsecure()));
    });
  });
}

function call<Name extends keyof InferenceMethods>(
  name: Name,
  request: InferenceMethods[Name]["request"],
): Promise<InferenceMethods[Name]["response"]> {
  const method = methodOf(name);
  return unary(method.path, method.requestSerialize, method.responseDeserialize, request);
}

function unary<Request, Response>(
  path: string,
  serialize: (value: Request) => Buffer,
  deserialize: (bytes: Buffer) => Response,
  request: Request,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(path, serialize, deserialize, request, (error, response) => {
      if (error !== null) reject(error);
      else resolve(response as Response);
    });
  });
}

async function failure(of: Promise<unknown>): Promise<Pick<ServiceError, "code" | "details">> {
  return await of.then(
    () => Promise.reject(new Error("it did not fail")),
    ({ code, details }: ServiceError) => ({ code, details }),
  );
}

const pixels = new Float32Array(imageElements).fill(0.25);
const pixelBytes = Buffer.from(pixels.buffer);
const input = { name: "image", datatype: "FP32", shape: [1, 3, 224, 224] };

function inferRequest(overrides: Partial<ModelInferRequest> = {}): ModelInferRequest {
  return { model_name: model, inputs: [input], raw_input_contents: [pixelBytes], ...overrides };
}
describe("infer", () => {
  test("answers in raw contents", async () => {
    const answer = await call("ModelInfer", inferRequest({ id: "7" }));
    expect(answer).toMatchObject({
      id: "7",
      model_name: model,
      model_version: "1",
      outputs: [{ name: "embedding", datatype: "FP32", shape: [1, 512] }],
    });
    expect(answer.raw_output_contents[0]?.byteLength).toBe(2048);
  });

  test.each(
    Object.entries<ModelInferRequest>({
      [`unable to find data for input tensor 'image' for model '${model}' in request.`]:
        inferRequest({ raw_input_contents: [] }),
      [`expected 1 raw_input_contents for model '${model}', got 2`]: inferRequest({
        raw_input_contents: [pixelBytes, pixelBytes],
      }),
      "invalid datatype 'FP31' for 'image'": inferRequest({
        inputs: [{ ...input, datatype: "FP31" }],
      }),
    }),
  )("fails: %s", async (details, request) => {
    expect(await failure(call("ModelInfer", request))).toEqual({
      code: status.INVALID_ARGUMENT,
      details,
    });
  });

  test("fails on a missing model or version with different status codes", async () => {
    expect(await failure(call("ModelInfer", inferRequest({ model_name: "nope" })))).toEqual({
      code: status.NOT_FOUND,
      details: "Request for unknown model: 'nope' is not found",
    });
    expect(await failure(call("ModelInfer", inferRequest({ model_version: "9" })))).toEqual({
      code: status.NOT_FOUND,
      details: `Request for unknown model: '${model}' version 9 is not found`,
    });
  });

  test("rejects unsupported features of Triton", async () => {
    const classification = { classification: { int64_param: 3 } };
    const outputs = [{ name: "embedding", parameters: classification }];
    expect(await failure(call("ModelInfer", inferRequest({ outputs })))).toMatchObject({
      code: status.UNIMPLEMENTED,
    });
    const method = inferenceService.SystemSharedMemoryStatus!;
    const shared = unary(method.path, method.requestSerialize, method.responseDeserialize, {});
    expect(await failure(shared)).toEqual({
      code: status.UNIMPLEMENTED,
      details: "SystemSharedMemoryStatus is not supported by this server",
    });
  });
});

describe("a stream of inferences", () => {
  interface StreamResponse {
    readonly error_message: string;
    readonly infer_response: ModelInferResponse;
  }

  test("answers the requests in order and continues after a failure", async () => {
    const method = inferenceService.ModelStreamInfer!;
    const stream = client.makeBidiStreamRequest<ModelInferRequest, StreamResponse>(
      method.path,
      method.requestSerialize,
      method.responseDeserialize as (bytes: Buffer) => StreamResponse,
      new Metadata(),
    );
    stream.write(inferRequest({ id: "a" }));
    stream.write(inferRequest({ id: "b", model_name: "nope" }));
    stream.write(inferRequest({ id: "c" }));
    stream.end();
    const answers: StreamResponse[] = [];
    for await (const answer of stream) answers.push(answer as StreamResponse);
    expect(answers.map(({ error_message, infer_response: { id } }) => [id, error_message])).toEqual(
      [
        ["a", ""],
        ["b", "Request for unknown model: 'nope' is not found"],
        ["c", ""],
      ],
    );
  });
});

test("many streams and many requests per stream cause no warnings", async () => {
  const warnings: unknown[] = [];
  const warn = (warning: Error) => warnings.push(warning.message);
  process.on("warning", warn);
  const { path, requestSerialize, responseDeserialize } = inferenceService.ModelStreamInfer!;
  const streams = Array.from({ length: 12 }, () =>
    client.makeBidiStreamRequest<ModelInferRequest, { error_message: string }>(
      path,
      requestSerialize,
      responseDeserialize as (bytes: Buffer) => { error_message: string },
      new Metadata(),
    ),
  );
  for (let id = 0; id < 20; id += 1) streams[0]!.write(inferRequest({ id: String(id) }));
  for (const stream of streams.slice(1)) stream.write(inferRequest({ model_name: "nope" }));
  const first = await Promise.all(streams.map(async (stream) => (await once(stream, "data"))[0]));
  expect(first[0].error_message).toBe("");
  for (const stream of streams) stream.end();
  await Promise.all(streams.map((stream) => stream.resume() && once(stream, "end")));
  process.off("warning", warn);
  expect(warnings).toEqual([]);
});

describe("an invalid stream", () => {
  const streamOf = () => {
    const { path, responseDeserialize } = inferenceService.ModelStreamInfer!;
    const asItIs = (message: Buffer) => message;
    return client.makeBidiStreamRequest(path, asItIs, responseDeserialize, new Metadata());
  };

  test("answers an invalid message and continues", async () => {
    const { requestSerialize } = inferenceService.ModelStreamInfer!;
    const stream = streamOf();
    stream.write(Buffer.from([0x0f]));
    stream.write(requestSerialize(inferRequest({ id: "after" })));
    stream.end();
    const answers: unknown[] = [];
    for await (const answer of stream) answers.push(answer);
    expect(answers).toMatchObject([
      { error_message: expect.stringMatching(/^failed to parse the request: /) },
      { error_message: "", infer_response: { id: "after" } },
    ]);
  });

  test("answers a client that reads only after sending all requests", async () => {
    const { requestSerialize } = inferenceService.ModelStreamInfer!;
    const stream = streamOf();
    const count = 5_000;
    for (let id = 0; id < count; id += 1) {
      stream.write(requestSerialize({ id: String(id), model_name: "nope" }));
    }
    stream.end();
    const ids: string[] = [];
    for await (const { infer_response } of stream) ids.push(infer_response.id);
    expect(ids).toEqual(Array.from({ length: count }, (_, id) => String(id)));
  });
});

describe("health", () => {
  const check = async (service: string) => {
    const { path, requestSerialize, responseDeserialize } = healthService.Check!;
    return await unary(path, requestSerialize, responseDeserialize, { service });
  };

  test("the server, the service and a loaded model are serving", async () => {
    for (const service of ["", "inference.GRPCInferenceService", model]) {
      expect(await check(service)).toEqual({ status: "SERVING" });
    }
  });

  test("another service is unknown", async () => {
    expect(await failure(check("nope"))).toEqual({
      code: status.NOT_FOUND,
      details: "unknown service 'nope'",
    });
  });
});

describe("the repository", () => {
  test("loads and unloads models", async () => {
    const states = async () =>
      (await call("RepositoryIndex", {})).models.map(({ name, state }) => [name, state]);
    expect(await states()).toEqual([
      [model, "READY"],
      ["spare", ""],
    ]);
    await call("RepositoryModelLoad", { model_name: "spare" });
    expect(await states()).toContainEqual(["spare", "READY"]);
    expect((await call("ModelStatistics", { name: "" })).model_stats).toHaveLength(2);
    await call("RepositoryModelUnload", { model_name: "spare" });
    expect(await states()).toContainEqual(["spare", "UNAVAILABLE"]);
    expect(await call("ModelReady", { name: "spare" })).toEqual({ ready: false });
    expect(await failure(call("ModelMetadata", { name: "spare" }))).toEqual({
      code: status.NOT_FOUND,
      details: "Request for unknown model: 'spare' has no available versions",
    });
  });

  test("loads a model with another configuration", async () => {
    const config = JSON.stringify({
      platform: "onnxruntime_onnx",
      max_batch_size: 2,
      input: [{ name: "image", data_type: "TYPE_FP32", dims: [3, 224, 224] }],
      output: [{ name: "embedding", data_type: "TYPE_FP32", dims: [512] }],
    });
    await call("RepositoryModelLoad", {
      model_name: "spare",
      parameters: { config: { string_param: config } },
    });
    expect((await call("ModelConfig", { name: "spare" })).config).toMatchObject({
      name: "spare",
      max_batch_size: 2,
    });
  });
});
