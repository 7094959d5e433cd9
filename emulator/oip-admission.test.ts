import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { request } from "undici";
import { describe, expect, onTestFinished, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../client/triton/http-transport.ts";
import {
  channelOptions,
  encodeGrpcRequest,
  type ModelInferResponse,
  methodOf,
} from "../client/triton/wire-grpc.ts";
import { encodeInferRequest } from "../client/triton/wire-http.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../contract/tensor.ts";
import type { AdmissionLimits } from "../http/admission.ts";
import { testRepository, tinyConfig } from "./test-repository.ts";
import {
  limitsFromEnv,
  type RunningTritonEmulator,
  startTritonEmulator,
} from "./triton-emulator.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = "openclip_vit_b32";
const imageBytes = 4 * imageElements;
const inputOf = (items: number): Fp32Tensor => ({
  name: "image",
  dataType: "FP32",
  shape: [items, 3, 224, 224],
  data: new Float32Array(items * imageElements),
});

/** Starts a server with this queue delay, so that the queue stays full. */
async function start(
  limits: Partial<AdmissionLimits>,
  { holdMs = 2000 } = {},
): Promise<RunningTritonEmulator> {
  const extra = `dynamic_batching { max_queue_delay_microseconds: ${holdMs * 1000} }`;
  const repository = await testRepository({ [`${model}/config.pbtxt`]: tinyConfig({ extra }) });
  onTestFinished(() => repository.remove());
  const server = await startTritonEmulator(repository.flags(), {
    log: () => {},
    limits: { maxQueueSize: 512, maxQueueBytes: 256 * 1024 * 1024, ...limits },
  });
  onTestFinished(() => server.stop().catch(() => {}));
  return server;
}

const infer = (server: RunningTritonEmulator, body: Buffer | string, headers = {}) =>
  request(`http://127.0.0.1:${server.ports.http}/v2/models/${model}/infer`, {
    method: "POST",
    body,
    headers,
  });

function post(server: RunningTritonEmulator, items: number, headers = {}) {
  const body = encodeInferRequest([inputOf(items)], { encoding: "binary" });
  return infer(server, Buffer.concat(body.chunks), { ...body.headers, ...headers });
}

function grpcClient(server: RunningTritonEmulator): Client {
  const target = `127.0.0.1:${server.ports.grpc}`;
  const client = new Client(target, credentials.createInsecure(), channelOptions);
  onTestFinished(() => client.close());
  return client;
}

function call(client: Client, message: Buffer, deadline?: number): Promise<ModelInferResponse> {
  const { path, responseDeserialize } = methodOf("ModelInfer");
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      path,
      (bytes: Buffer) => bytes,
      responseDeserialize,
      message,
      new Metadata(),
      { deadline },
      (error, response) => (error === null ? resolve(response!) : reject(error)),
    );
  });
}
const messageOf = (items: number) =>
  methodOf("ModelInfer").requestSerialize(encodeGrpcRequest(model, [inputOf(items)], {}));

async function metric(server: RunningTritonEmulator, series: string): Promise<number> {
  const { body } = await request(`http://127.0.0.1:${server.ports.metrics}/metrics`);
  const line = (await body.text()).split("\n").find((text) => text.startsWith(`${series} `));
  return Number(line?.slice(series.length));
}
const labels = `model="${model}",version="1"`;
const pending = (server: RunningTritonEmulator) =>
  metric(server, `nv_inference_pending_request_count{${labels}}`);
const rejected = (server: RunningTritonEmulator) =>
  metric(server, `nv_inference_request_failure{${labels},reason="REJECTED"}`);
const executed = (server: RunningTritonEmulator) =>
  metric(server, `nv_inference_exec_count{${labels}}`);

describe("queued images", () => {
  test("beyond the limit HTTP responds with 429 and Retry-After", async () => {
    const server = await start({ maxQueueSize: 4 });
    const waiting = [post(server, 3), post(server, 1)];
    await expect.poll(() => pending(server)).toBe(2);
    const response = await post(server, 1);
    expect(response.statusCode).toBe(429);
    expect(Number(response.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect(await response.body.json()).toEqual({
      error: "the queue is full, the limit is 4 items; retry later",
    });
    expect(await rejected(server)).toBe(1);
    for (const answer of waiting) expect((await answer).statusCode).toBe(200);
    expect((await post(server, 1)).statusCode).toBe(200);
  });

  test("beyond the limit gRPC responds with RESOURCE_EXHAUSTED, also for requests queued over HTTP", async () => {
    const server = await start({ maxQueueSize: 4 });
    const waiting = post(server, 4);
    await expect.poll(() => pending(server)).toBe(1);
    const error = await call(grpcClient(server), messageOf(1)).catch((reason) => reason);
    expect(error).toMatchObject({
      code: status.RESOURCE_EXHAUSTED,
      details: "the queue is full, the limit is 4 items; retry later",
    });
    expect((await waiting).statusCode).toBe(200);
  });

  test("a request of any size is accepted if the queue is empty", async () => {
    const server = await start({ maxQueueSize: 1 }, { holdMs: 0 });
    expect((await post(server, 8)).statusCode).toBe(200);
  });

  test("a request that would exceed the limit is rejected", async () => {
    const server = await start({ maxQueueSize: 4 });
    const waiting = post(server, 3);
    await expect.poll(() => pending(server)).toBe(1);
    expect((await post(server, 2)).statusCode).toBe(429);
    expect((await waiting).statusCode).toBe(200);
  });

  test("a rejection waits neither for the queue nor for the body", async () => {
    const server = await start({ maxQueueSize: 20 }, { holdMs: 4000 });
    let computed = false;
    const waiting = post(server, 20).then(() => {
      computed = true;
    });
    await expect.poll(() => pending(server)).toBe(1);
    for (let round = 0; round < 20; round += 1) {
      expect(await answerToHead(server, 8 * imageBytes)).toMatch(/^HTTP\/1\.1 429 /);
    }
    expect(computed).toBe(false);
    await waiting;
  });
});

/** Returns the response to a request after only its headers were sent. */
async function answerToHead(server: RunningTritonEmulator, contentLength: number): Promise<string> {
  const socket = connect(server.ports.http, "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  socket.write(
    `POST /v2/models/${model}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: ${contentLength}\r\n\r\n`,
  );
  return await new Promise((resolve) => socket.once("data", (data) => resolve(String(data))));
}

describe("queued bytes", () => {
  test("a body beyond the limit is rejected by its Content-Length before it arrives", async () => {
    const server = await start({ maxQueueBytes: 2.5 * imageBytes });
    const waiting = post(server, 2);
    await expect.poll(() => pending(server)).toBe(1);
    const answer = await answerToHead(server, imageBytes);
    expect(answer).toMatch(/^HTTP\/1\.1 429 .*\r\n/);
    expect(answer).toMatch(/\r\nretry-after: \d+\r\n/i);
    expect((await waiting).statusCode).toBe(200);
  });

  test("the decompressed size of a body is counted", async () => {
    const server = await start({ maxQueueBytes: 2.5 * imageBytes });
    const waiting = post(server, 2);
    await expect.poll(() => pending(server)).toBe(1);
    const body = encodeInferRequest([inputOf(1)], { encoding: "binary" });
    const { "content-length": _, ...headers } = body.headers;
    const small = gzipSync(Buffer.concat(body.chunks));
    expect(small.byteLength).toBeLessThan(10_000);
    const response = await infer(server, small, { ...headers, "content-encoding": "gzip" });
    expect(response.statusCode).toBe(429);
    expect((await waiting).statusCode).toBe(200);
  });

  test("the bytes of a disconnected client are released", async () => {
    const server = await start({ maxQueueBytes: 1.5 * imageBytes }, { holdMs: 200 });
    for (let round = 0; round < 3; round += 1) {
      const socket = connect(server.ports.http, "127.0.0.1");
      socket.write(
        `POST /v2/models/${model}/infer HTTP/1.1\r\nhost: x\r\ncontent-length: ${imageBytes}\r\n\r\nhalf`,
      );
      await sleep(50);
      socket.destroy();
      await sleep(50);
    }
    expect((await post(server, 1)).statusCode).toBe(200);
  });
});

describe("requests after their deadline", () => {
  const timeout = (us: number) =>
    encodeInferRequest([inputOf(1)], { encoding: "json" }).chunks.map((chunk) =>
      String(Buffer.from(chunk)).replace("{", `{"parameters":{"timeout":${us}},`),
    )[0]!;

  test("a request is dropped before inference after its 'timeout'", async () => {
    const server = await start({}, { holdMs: 3000 });
    const answer = await infer(server, timeout(200_000));
    expect(answer.statusCode).toBe(503);
    expect(await answer.body.json()).toEqual({
      error: "Request timeout expired",
    });
    expect(await executed(server)).toBe(0);
    expect(await rejected(server)).toBe(1);
  });

  test("a call is dropped before inference after its grpc-timeout", async () => {
    const server = await start({}, { holdMs: 1500 });
    const error = (await call(grpcClient(server), messageOf(1), Date.now() + 300).catch(
      (reason) => reason,
    )) as ServiceError;
    expect(error.code).toBe(status.DEADLINE_EXCEEDED);
    await expect.poll(() => pending(server)).toBe(0);
    await sleep(1500);
    expect(await executed(server)).toBe(0);
  });

  test.each(["-1", "0.5", '"soon"', "1e300"])("a timeout of %s is rejected", async (value) => {
    const server = await start({}, { holdMs: 0 });
    const answer = await infer(server, timeout(0).replace('"timeout":0', `"timeout":${value}`));
    expect(answer.statusCode).toBe(400);
    expect(((await answer.body.json()) as { error: string }).error).toMatch(
      /^Unable to parse 'timeout': must be a whole number of at least 0, got /,
    );
  });
});

test("the transports call a full server unavailable", async () => {
  const server = await start({ maxQueueSize: 1 });
  const waiting = post(server, 1);
  await expect.poll(() => pending(server)).toBe(1);
  for (const transport of [
    openHttpTransport({ url: `http://127.0.0.1:${server.ports.http}` }),
    openGrpcTransport({ target: `127.0.0.1:${server.ports.grpc}` }),
  ]) {
    onTestFinished(() => transport.close());
    await expect(transport.infer(model, [inputOf(1)], { timeoutMs: 10_000 })).rejects.toMatchObject(
      { code: "unavailable" },
    );
  }
  await waiting;
});

describe("environment variables", () => {
  test("limit the queue; an empty variable counts as unset", () => {
    expect(limitsFromEnv({ MAX_QUEUE_SIZE: "7", MAX_QUEUE_BYTES: "" })).toEqual({
      maxQueueSize: 7,
      maxQueueBytes: 256 * 1024 * 1024,
    });
  });

  test("reject an invalid limit", () => {
    expect(() => limitsFromEnv({ MAX_QUEUE_SIZE: "0" })).toThrow(/^MAX_QUEUE_SIZE: .*, got '0'$/);
  });
});
