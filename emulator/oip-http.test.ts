import { gunzipSync, gzipSync, inflateSync } from "node:zlib";
import type { FastifyInstance, InjectOptions } from "fastify";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { headerLengthField } from "../client/triton/wire-http.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { buildOipApp } from "./oip-http.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = "openclip_vit_b32";
const maxInputBytes = 8 * 1024 * 1024;

let repository: TestRepository;
let registry: ModelRegistry;
let app: FastifyInstance;

beforeAll(async () => {
  repository = await testRepository();
  registry = await openModelRegistry(repository.flags(), () => {});
  app = buildOipApp(registry, { maxInputBytes });
});
afterAll(async () => {
  await app.close();
  await registry.close();
  await repository.remove();
});

const shape = [1, 3, 224, 224];
const pixels = Float32Array.from({ length: imageElements }, (_, index) => (index % 255) / 255);
const pixelBytes = Buffer.from(pixels.buffer);

const binaryInput = {
  name: "image",
  datatype: "FP32",
  shape,
  parameters: { binary_data_size: pixelBytes.byteLength },
};

/** Inference request: JSON header followed by binary data. */
function post(json: unknown, binary: Uint8Array = new Uint8Array(), extra: InjectOptions = {}) {
  const head = Buffer.from(JSON.stringify(json));
  return app.inject({
    method: "POST",
    url: `/v2/models/${model}/infer`,
    payload: Buffer.concat([head, binary]),
    ...extra,
    headers: {
      "content-type": "application/octet-stream",
      [headerLengthField]: String(head.byteLength),
      ...extra.headers,
    },
  });
}

describe("health", () => {
  test("live and ready answer 200 without a body", async () => {
    for (const url of ["/v2/health/live", "/v2/health/ready", `/v2/models/${model}/ready`]) {
      const response = await app.inject(url);
      expect([response.statusCode, response.body]).toEqual([200, ""]);
    }
  });

  test("a model, or a version, that is missing is not ready", async () => {
    const unknown = await app.inject("/v2/models/nope/ready");
    expect(unknown.statusCode).toBe(400);
    expect(unknown.json()).toEqual({ error: "Model version not ready" });
    const version = await app.inject(`/v2/models/${model}/versions/9/ready`);
    expect(version.statusCode).toBe(400);
    expect(version.json()).toEqual({ error: "Model version not ready" });
  });
});

describe("routes", () => {
  test.each(["/v3", "/v2/", `/v2/models/${model}/versions/x`])("%s answers 404", async (url) => {
    const response = await app.inject(url);
    expect(response.statusCode).toBe(404);
    expect(response.json()).toEqual({ error: "Not Found" });
  });

  test("JSON has Triton's content type", async () => {
    expect((await app.inject("/v2")).headers["content-type"]).toBe("application/json");
    expect((await app.inject("/v3")).headers["content-type"]).toBe("application/json");
  });

  test("metadata and statistics of missing models fail with Triton's messages", async () => {
    const ask = async (url: string) => {
      const response = await app.inject(url);
      return [response.statusCode, response.json().error];
    };
    expect(await ask("/v2/models/nope")).toEqual([
      404,
      "Request for unknown model: 'nope' is not found",
    ]);
    expect(await ask("/v2/models/nope/stats")).toEqual([
      400,
      "requested model 'nope' is not available",
    ]);
    expect(await ask(`/v2/models/${model}/versions/9/stats`)).toEqual([
      400,
      `requested model version is not available for model '${model}'`,
    ]);
    expect(await ask(`/v2/models/${model}/versions/0/config`)).toEqual([
      400,
      "failed to get model version from specified version string '0', version should be an integral value > 0",
    ]);
  });

  test("metadata, configuration and statistics are the same with the version in the path", async () => {
    for (const what of ["", "/config", "/stats"]) {
      const latest = await app.inject(`/v2/models/${model}${what}`);
      const first = await app.inject(`/v2/models/${model}/versions/1${what}`);
      expect(latest.statusCode).toBe(200);
      expect(first.json()).toEqual(latest.json());
    }
  });

  test("the index names the model, its version and its state", async () => {
    const ask = (payload: string) =>
      app.inject({ method: "POST", url: "/v2/repository/index", payload });
    const ready = [{ name: model, version: "1", state: "READY" }];
    expect((await ask("")).json()).toEqual(ready);
    expect((await ask('{"ready":true}')).json()).toEqual(ready);
    const wrong = await ask('{"ready":1}');
    expect(wrong.statusCode).toBe(400);
    expect(wrong.json().error).toMatch(/^Invalid value for 'ready': /);
  });

  test.each(["load", "unload"])(
    "%s is rejected when the server does not take orders",
    async (action) => {
      const url = `/v2/repository/models/${model}/${action}`;
      const response = await app.inject({ method: "POST", url });
      expect(response.statusCode).toBe(503);
      expect(response.json()).toEqual({
        error: "explicit model load / unload is not allowed if polling is enabled",
      });
    },
  );
});

describe("infer", () => {
  test("answers JSON with JSON without a header", async () => {
    const response = await app.inject({
      method: "POST",
      url: `/v2/models/${model}/infer`,
      payload: JSON.stringify({
        id: "7",
        inputs: [{ name: "image", datatype: "FP32", shape, data: Array.from(pixels) }],
      }),
    });
    expect(response.statusCode).toBe(200);
    expect(response.headers["content-type"]).toBe("application/json");
    const answer = response.json();
    expect(answer).toMatchObject({
      id: "7",
      model_name: model,
      model_version: "1",
      outputs: [{ name: "embedding", datatype: "FP32", shape: [1, 512] }],
    });
    expect(answer.outputs[0].data).toHaveLength(512);
  });

  test("answers with binary data on request", async () => {
    const response = await post(
      { inputs: [binaryInput], parameters: { binary_data_output: true } },
      pixelBytes,
    );
    expect(response.statusCode).toBe(200);
    expect(response.headers["content-type"]).toBe("application/octet-stream");
    const length = Number(response.headers[headerLengthField]);
    const answer = JSON.parse(response.rawPayload.subarray(0, length).toString());
    expect(answer).not.toHaveProperty("id");
    expect(answer.outputs).toEqual([
      {
        name: "embedding",
        datatype: "FP32",
        shape: [1, 512],
        parameters: { binary_data_size: 2048 },
      },
    ]);
    expect(response.rawPayload.byteLength - length).toBe(2048);
  });

  test("returns the same values as JSON and as binary data", async () => {
    const json = await post(
      { inputs: [binaryInput], outputs: [{ name: "embedding" }] },
      pixelBytes,
    );
    const outputs = [{ name: "embedding", parameters: { binary_data: true } }];
    const binary = await post({ inputs: [binaryInput], outputs }, pixelBytes);
    const { rawPayload } = binary;
    const bytes = rawPayload.subarray(Number(binary.headers[headerLengthField]));
    const values = new Float32Array(Uint8Array.from(bytes).buffer);
    expect(Array.from(Float32Array.from(json.json().outputs[0].data))).toEqual(Array.from(values));
  });

  test("accepts and sends gzip and deflate", async () => {
    const head = Buffer.from(JSON.stringify({ inputs: [binaryInput] }));
    const uncompressed = await post({ inputs: [binaryInput] }, pixelBytes);
    const decompress = { gzip: gunzipSync, deflate: inflateSync };
    for (const encoding of ["gzip", "deflate"] as const) {
      const response = await app.inject({
        method: "POST",
        url: `/v2/models/${model}/infer`,
        payload: gzipSync(Buffer.concat([head, pixelBytes])),
        headers: {
          "content-encoding": "gzip",
          "accept-encoding": encoding,
          [headerLengthField]: String(head.byteLength),
          "content-type": "application/octet-stream",
        },
      });
      expect(response.headers["content-encoding"]).toBe(encoding);
      expect(decompress[encoding](response.rawPayload).toString()).toBe(uncompressed.body);
    }
  });
});

describe("infer fails", () => {
  test.each<[string, unknown, Uint8Array, number, string]>([
    [
      "when there is no input",
      { inputs: [] },
      new Uint8Array(),
      400,
      `expected 1 inputs but got 0 inputs for model '${model}'`,
    ],
    [
      "when an input comes twice",
      {
        inputs: [binaryInput, { ...binaryInput, shape: [0], parameters: { binary_data_size: 0 } }],
      },
      pixelBytes,
      400,
      `input 'image' already exists in request`,
    ],
    [
      "when the input has no dimensions",
      { inputs: [{ ...binaryInput, shape: [] }] },
      pixelBytes,
      400,
      `input 'image' has no shape but model requires batch dimension for '${model}'`,
    ],
    [
      "if a classification is requested",
      {
        inputs: [binaryInput],
        outputs: [{ name: "embedding", parameters: { classification: 2 } }],
      },
      pixelBytes,
      400,
      "classification is not supported: request 'embedding' itself and rank it in the client",
    ],
  ])("%s", async (_, json, binary, status, error) => {
    const response = await post(json, binary);
    expect({ status: response.statusCode, body: response.json() }).toEqual({
      status,
      body: { error },
    });
  });

  test("if the model or the version is unknown", async () => {
    const ask = (url: string) => post({ inputs: [binaryInput] }, pixelBytes, { url });
    const unknown = await ask("/v2/models/nope/infer");
    expect(unknown.statusCode).toBe(404);
    expect(unknown.json()).toEqual({ error: "Request for unknown model: 'nope' is not found" });
    const version = await ask(`/v2/models/${model}/versions/2/infer`);
    expect(version.statusCode).toBe(404);
  });

  test("if the encoding is unsupported, with those that are", async () => {
    const headers = { "content-encoding": "br" };
    const response = await post({ inputs: [] }, new Uint8Array(), { headers });
    expect(response.headers["accept-encoding"]).toBe("gzip, deflate");
  });
});

test("allows a client two minutes to send a request", () => {
  expect(app.server.requestTimeout).toBe(120_000);
});

test("a stopping server is not ready but still answers requests", async () => {
  const leaving = await openModelRegistry(repository.flags(), () => {});
  const leavingApp = buildOipApp(leaving, { maxInputBytes });
  leaving.beginExit();
  expect((await leavingApp.inject("/v2/health/ready")).statusCode).toBe(400);
  expect((await leavingApp.inject("/v2/health/live")).statusCode).toBe(200);
  const head = Buffer.from(JSON.stringify({ inputs: [binaryInput] }));
  const response = await leavingApp.inject({
    method: "POST",
    url: `/v2/models/${model}/infer`,
    payload: Buffer.concat([head, pixelBytes]),
    headers: { [headerLengthField]: String(head.byteLength) },
  });
  expect(response.statusCode).toBe(200);
  await leavingApp.close();
  await leaving.close();
});

describe("explicit model control", () => {
  let explicit: ModelRegistry;
  let explicitApp: FastifyInstance;
  let two: TestRepository;
  beforeAll(async () => {
    two = await testRepository({
      "first/config.pbtxt": tinyConfig({ name: "first" }),
      "second/config.pbtxt": tinyConfig({ name: "second" }),
    });
    explicit = await openModelRegistry(
      two.flags({ "model-control-mode": "explicit", "load-model": ["first"] }),
      () => {},
    );
    explicitApp = buildOipApp(explicit, { maxInputBytes });
  });
  afterAll(async () => {
    await explicitApp.close();
    await explicit.close();
    await two.remove();
  });
  const order = (action: string, payload = "") =>
    explicitApp.inject({ method: "POST", url: `/v2/repository/models/${action}`, payload });
  const index = async () =>
    (await explicitApp.inject({ method: "POST", url: "/v2/repository/index" })).json();

  test("loads and unloads models", async () => {
    expect(await index()).toEqual([
      { name: "first", version: "1", state: "READY" },
      { name: "second" },
    ]);
    expect((await order("second/load")).statusCode).toBe(200);
    expect((await order("first/unload")).statusCode).toBe(200);
    expect(await index()).toEqual([
      { name: "first", version: "1", state: "UNAVAILABLE", reason: "unloaded" },
      { name: "second", version: "1", state: "READY" },
    ]);
    expect((await explicitApp.inject("/v2/health/ready")).statusCode).toBe(200);
    const gone = await explicitApp.inject("/v2/models/first");
    expect(gone.statusCode).toBe(404);
    expect(gone.json()).toEqual({
      error: "Request for unknown model: 'first' has no available versions",
    });
  });

  test("loads a model with another configuration", async () => {
    const config = {
      platform: "onnxruntime_onnx",
      max_batch_size: 4,
      input: [{ name: "image", data_type: "TYPE_FP32", dims: [3, 224, 224] }],
      output: [{ name: "embedding", data_type: "TYPE_FP32", dims: ["512"] }],
      dynamicBatching: { preferredBatchSize: [2], maxQueueDelayMicroseconds: "100" },
      parameters: { note: { string_value: "1" } },
    };
    const payload = JSON.stringify({ parameters: { config: JSON.stringify(config) } });
    expect((await order("second/load", payload)).statusCode).toBe(200);
    expect((await explicitApp.inject("/v2/models/second/config")).json()).toMatchObject({
      name: "second",
      max_batch_size: 4,
      dynamic_batching: { preferred_batch_size: [2], max_queue_delay_microseconds: 100 },
      parameters: { note: { string_value: "1" } },
    });
  });

  test("keeps the loaded model if its new configuration is invalid", async () => {
    const override = (config: string) =>
      order("second/load", JSON.stringify({ parameters: { config } }));
    await order("second/load");
    const unknown = await override('{"max_batch":4}');
    expect(unknown.statusCode).toBe(400);
    expect(unknown.json().error).toBe(
      'failed to parse the config override: .inference.ModelConfig: unknown field: "max_batch"',
    );
    const broken = await override("{");
    expect(broken.json().error).toMatch(/^failed to parse the config override: /);
    expect((await explicitApp.inject("/v2/models/second/ready")).statusCode).toBe(200);
  });

  test("fails to load a missing model and to unload a model that is not loaded", async () => {
    const load = await order("third/load");
    expect(load.statusCode).toBe(400);
    expect(load.json()).toEqual({
      error: "failed to load 'third', failed to poll from model repository",
    });
    const unload = await order("third/unload");
    expect(unload.statusCode).toBe(400);
    expect(unload.json()).toEqual({ error: "Model to be unloaded has not been served" });
  });

  test("fails to load a model with a name outside the repository", async () => {
    const response = await order(`${encodeURIComponent("../first")}/load`);
    expect(response.statusCode).toBe(400);
  });
});
