import { readFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { fullTestRepository, type TestRepository } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { closedPort, listenHttp } from "../../http/test-listener.ts";
import { openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import type { RunningEmbedServer } from "../../inference-image/server/embed-server.ts";
import { startLoaded } from "../../inference-image/server/test-embed-server.ts";
import { tinyModel, tinyRepository } from "../../model-tools/generate/test-model.ts";
import { ClientError } from "./client-error.ts";
import {
  type InferenceClient,
  type InferenceClientOptions,
  openInferenceClient,
} from "./inference-client.ts";

const sample = (file: string) =>
  readFileSync(new URL(`../../model-tools/samples/${file}`, import.meta.url));
const images = ["sunset.jpg", "flower-exif-6.jpg", "shell-alpha.png", "clouds.webp"].map(sample);
const noImage = Buffer.from("GIF89a is not supported");

let modelPath: string;
let modelRepository: string;
let embedServer: RunningEmbedServer;
let repository: TestRepository;
let triton: RunningTritonEmulator;
let expected: readonly Float32Array[];

beforeAll(async () => {
  [modelPath, modelRepository] = await Promise.all([tinyModel(), tinyRepository()]);
  embedServer = await startLoaded({
    MODEL_REPOSITORY: modelRepository,
  });
  repository = await fullTestRepository();
  triton = await startTritonEmulator(repository.flags(), { log: () => {} });
  const local = await openLocalEmbedder({ spec: defaultModel, modelPath, intraOpThreads: 1 });
  expected = await local.embed(images);
  await local.close();
});
afterAll(async () => {
  await embedServer?.stop();
  await triton?.stop();
  await repository?.remove();
});

const cleanups: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function open(options: Partial<InferenceClientOptions> = {}): Promise<InferenceClient> {
  const client = await openInferenceClient({
    backend: "embed",
    mode: "remote",
    serviceUrl: `http://127.0.0.1:${embedServer.port}`,
    modelPath,
    ...options,
  });
  cleanups.push(() => client.close());
  return client;
}

/** Service that responds as the test specifies. */
async function serviceUrl(listener: RequestListener): Promise<string> {
  const { url, stop } = await listenHttp(listener);
  cleanups.push(stop);
  return url;
}

const errorOf = (work: Promise<unknown>): Promise<ClientError> =>
  work.then(
    () => {
      throw new Error("expected it to fail");
    },
    (error: unknown) => {
      expect(error).toBeInstanceOf(ClientError);
      return error as ClientError;
    },
  );

function expectSame(vectors: readonly Float32Array[], others: readonly Float32Array[]): void {
  expect(vectors).toHaveLength(others.length);
  for (const [i, vector] of vectors.entries()) {
    const dot = vector.reduce((sum, value, k) => sum + value * others[i]![k]!, 0);
    expect(vector).toHaveLength(512);
    expect(Math.hypot(...vector)).toBeCloseTo(1, 5);
    expect(dot).toBeGreaterThan(0.999999);
  }
}

const remotes: readonly [string, () => Partial<InferenceClientOptions>][] = [
  ["embed", () => ({})],
  ["triton", () => ({ backend: "triton", serviceUrl: `http://127.0.0.1:${triton.ports.http}` })],
  [
    "triton_grpc",
    () => ({ backend: "triton_grpc", tritonGrpcUrl: `127.0.0.1:${triton.ports.grpc}` }),
  ],
];

/** Triton over both protocols, with the models for the other payload formats. */
const tritonFormats = (["triton", "triton_grpc"] as const).flatMap((backend) =>
  ["openclip_vit_b32_u8", "openclip_vit_b32_jpeg"].map((tritonModel): (typeof remotes)[number] => [
    `${backend}, ${tritonModel}`,
    () => ({
      backend,
      tritonModel,
      serviceUrl: `http://127.0.0.1:${triton.ports.http}`,
      tritonGrpcUrl: `127.0.0.1:${triton.ports.grpc}`,
    }),
  ]),
);

describe.each([
  ...remotes,
  ...tritonFormats,
  ["the local model", () => ({ mode: "local" as const })] as const,
])("%s", (_name, options) => {
  test("returns the embeddings of the model in order", async () => {
    const client = await open(options());
    expectSame(await client.embed(images), expected);
  });

  test("splits more than 32 images and keeps their order", async () => {
    const client = await open(options());
    // an odd number, so that swapped requests are detected
    const many = Array.from({ length: 35 }, (_, i) => images[i % 2]!);
    const expectedMany = many.map((_, i) => expected[i % 2]!);
    expectSame(await client.embed(many), expectedMany);
  });

  test("reports the index of an undecodable image in the whole list", async () => {
    const client = await open(options());
    const many = Array.from({ length: 35 }, (_, i) => (i === 33 ? noImage : images[0]!));
    const error = await errorOf(client.embed(many));
    expect(error.code).toBe("image");
    expect(error.image).toBe(33);
    expect(error.message).toMatch(/^\[image\] image 33 is not a JPEG, PNG or WebP file/);
  });

  test("returns nothing for no images", async () => {
    expect(await (await open(options())).embed([])).toEqual([]);
  });

  test("completes outstanding requests when closed, and rejects later ones", async () => {
    const client = await open(options());
    const inFlight = client.embed(images);
    await client.close();
    expectSame(await inFlight, expected);
    expect((await errorOf(client.embed(images))).message).toBe("[closed] the client is closed");
  });
});

describe("remote", () => {
  test.each(remotes)("%s fails with unavailable if the connection is refused", async (backend) => {
    const port = await closedPort();
    const client = await open({
      backend: backend as "embed",
      serviceUrl: `http://127.0.0.1:${port}`,
      tritonGrpcUrl: `127.0.0.1:${port}`,
    });
    const error = await errorOf(client.embed(images));
    expect(error.code).toBe("unavailable");
    expect(error.message).toContain(`127.0.0.1:${port}`);
  });

  test("derives the gRPC target from the service's port", async () => {
    const port = await closedPort();
    const client = await open({ backend: "triton_grpc", serviceUrl: `http://127.0.0.1:${port}` });
    expect((await errorOf(client.embed(images))).message).toContain(`127.0.0.1:${port + 1}`);
  });

  test("rejects a model that Triton does not have", async () => {
    const client = await open({
      backend: "triton",
      serviceUrl: `http://127.0.0.1:${triton.ports.http}`,
      tritonModel: "resnet",
    });
    const error = await errorOf(client.embed(images));
    expect(error.code).toBe("rejected");
    expect(error.message).toContain("resnet");
  });

  test("rejects a model with other inputs and names them", async () => {
    const client = await open({
      backend: "triton",
      serviceUrl: `http://127.0.0.1:${triton.ports.http}`,
      tritonModel: "openclip_vit_b32_preprocess",
    });
    expect((await errorOf(client.embed(images))).message).toBe(
      "[rejected] openclip_vit_b32_preprocess must take image UINT8 [-1, 224, 224, 3], or image FP32 [-1, 3, 224, 224], or image BYTES [-1, 1], or image UINT8 [-1, -1] and give embedding FP32 [-1, 512], got encoded BYTES [-1, 1] and pixels UINT8 [-1, 224, 224, 3]",
    );
  });

  test.each([
    ["openclip_vit_b32_jpeg", 1.2],
    ["openclip_vit_b32_u8", 1.2 * 150_528],
  ])("%s is sent in its own payload format, which is the smallest", async (model, most) => {
    const server = `http://127.0.0.1:${triton.ports.http}`;
    let sent = 0;
    const url = await serviceUrl(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const body = Buffer.concat(chunks);
      sent = Math.max(sent, body.byteLength);
      const { "inference-header-content-length": length } = request.headers;
      const isPost = request.method === "POST";
      const forwarded = await fetch(`${server}${request.url}`, {
        method: request.method,
        headers: {
          "accept-encoding": "identity",
          ...(isPost && { "inference-header-content-length": String(length) }),
        },
        ...(isPost && { body }),
      });
      response.writeHead(forwarded.status, Object.fromEntries(forwarded.headers));
      response.end(Buffer.from(await forwarded.arrayBuffer()));
    });
    const client = await open({ backend: "triton", serviceUrl: url, tritonModel: model });
    expectSame(await client.embed(images.slice(0, 1)), expected.slice(0, 1));
    expect(sent).toBeGreaterThan(0);
    expect(sent).toBeLessThan(most < 2 ? most * images[0]!.byteLength + 1024 : most);
  });

  test("fails with timeout if the service does not respond in time", async () => {
    const url = await serviceUrl(() => {});
    const error = await errorOf((await open({ serviceUrl: url, timeoutMs: 100 })).embed(images));
    expect(error.message).toBe(`[timeout] no response from ${url} in 100 ms`);
  });

  test("retries an overloaded service after Retry-After", async () => {
    let requests = 0;
    const url = await serviceUrl((_request, response) => {
      requests += 1;
      const busy = requests < 3;
      response.writeHead(busy ? 429 : 200, { "retry-after": "0.01" });
      const embeddings = [Array.from({ length: 512 }, (_, i) => (i === 0 ? 1 : 0))];
      const error = { code: "overloaded", message: "512 images wait already" };
      response.end(JSON.stringify(busy ? { error } : { embeddings, model: "m" }));
    });
    const [vector] = await (await open({ serviceUrl: url })).embed([images[0]!]);
    expect(vector?.[0]).toBe(1);
    expect(requests).toBe(3);
  });

  test("fails with overloaded if the service stays overloaded", async () => {
    const url = await serviceUrl((_request, response) => {
      response.writeHead(429, { "retry-after": "60" });
      response.end(JSON.stringify({ error: { code: "overloaded", message: "full" } }));
    });
    const error = await errorOf((await open({ serviceUrl: url })).embed(images));
    expect(error.message).toBe(`[overloaded] full (429 from ${url})`);
  });

  test("reconnects after a lost connection", async () => {
    let requests = 0;
    const url = await serviceUrl((request, response) => {
      requests += 1;
      if (requests === 1) {
        request.socket.destroy();
        return;
      }
      response.end(JSON.stringify({ embeddings: [Array(512).fill(0.1)], model: "m" }));
    });
    expect(await (await open({ serviceUrl: url })).embed([images[0]!])).toHaveLength(1);
    expect(requests).toBe(2);
  });

  test.each([
    ["no JSON", "<html>", /^\[protocol\] http:\S+: the body: /],
    [
      "a vector of another width",
      JSON.stringify({ embeddings: [[1, 2, 3]], model: "m" }),
      /^\[protocol\] http:\S+: embeddings\.0: expected 512 values, got 3$/,
    ],
    [
      "another number of vectors",
      JSON.stringify({ embeddings: [], model: "m" }),
      /^\[protocol\] http:\S+: expected 1 embeddings, got 0$/,
    ],
  ])("fails with protocol on a response with %s", async (_name, body, message) => {
    const url = await serviceUrl((_request, response) => {
      response.end(body);
    });
    const client = await open({ serviceUrl: url, model: defaultModel.name });
    const error = await errorOf(client.embed([images[0]!]));
    expect(error.message).toMatch(message);
  });

  test("reports a proxy's error page in one line", async () => {
    const url = await serviceUrl((_request, response) => {
      response.writeHead(502);
      response.end("<h1>Bad\nGateway</h1>");
    });
    const error = await errorOf((await open({ serviceUrl: url })).embed([images[0]!]));
    expect(error.message).toBe(`[unavailable] ${url} responded with 502: <h1>Bad Gateway</h1>`);
  });
});

describe("local", () => {
  test.each([
    ["/nowhere/model.onnx", "[model] /nowhere/model.onnx: no such file"],
    [undefined, "[settings] modelPath is not set"],
  ])("fails at once with the model file %s", async (modelPath, message) => {
    const error = await errorOf(open({ mode: "local", modelPath }));
    expect(error.message).toBe(message);
  });
});

describe("auto", () => {
  test("uses the service while it responds", async () => {
    const reasons: string[] = [];
    const client = await open({
      mode: "auto",
      modelPath: "/nowhere/model.onnx",
      onFallback: (reason) => reasons.push(reason),
    });
    expectSame(await client.embed(images), expected);
    expect(reasons).toEqual([]);
  });

  test.each(remotes)("%s: falls back to the local model and reports it once", async (backend) => {
    const port = await closedPort();
    const reasons: string[] = [];
    const client = await open({
      backend: backend as "embed",
      mode: "auto",
      serviceUrl: `http://127.0.0.1:${port}`,
      tritonGrpcUrl: `127.0.0.1:${port}`,
      onFallback: (reason) => reasons.push(reason),
    });
    expectSame(await client.embed(images), expected);
    expectSame(await client.embed(images), expected);
    expect(reasons).toHaveLength(1);
    expect(reasons[0]).toContain(`127.0.0.1:${port}`);
  });

  test("reports the fallback once for all batches of a call", async () => {
    const reasons: string[] = [];
    const client = await open({
      mode: "auto",
      serviceUrl: `http://127.0.0.1:${await closedPort()}`,
      onFallback: (reason) => reasons.push(reason),
    });
    await client.embed(Array.from({ length: 35 }, () => images[0]!));
    expect(reasons).toHaveLength(1);
  });

  test("falls back from a service that is draining", async () => {
    const url = await serviceUrl((_request, response) => {
      response.writeHead(503);
      response.end(JSON.stringify({ error: { code: "unavailable", message: "stopping" } }));
    });
    const reasons: string[] = [];
    const client = await open({
      mode: "auto",
      serviceUrl: url,
      onFallback: (reason) => reasons.push(reason),
    });
    expectSame(await client.embed(images), expected);
    expect(reasons).toEqual([`stopping (503 from ${url})`]);
  });

  test("does not fall back for an undecodable image", async () => {
    const reasons: string[] = [];
    const client = await open({ mode: "auto", onFallback: (reason) => reasons.push(reason) });
    expect((await errorOf(client.embed([noImage]))).code).toBe("image");
    expect(reasons).toEqual([]);
  });

  test("fails with both reasons if the local model is missing too", async () => {
    const port = await closedPort();
    const client = await open({
      mode: "auto",
      serviceUrl: `http://127.0.0.1:${port}`,
      modelPath: "/nowhere/model.onnx",
    });
    expect((await errorOf(client.embed(images))).message).toBe(
      `[unavailable] cannot reach http://127.0.0.1:${port}: connection refused; ` +
        "cannot fall back to the local model: /nowhere/model.onnx: no such file",
    );
  });
});

describe("fails immediately if", () => {
  test.each(
    Object.entries({
      "serviceUrl must be http://host:port, without a path, got 'http://127.0.0.1:8002/embed'": {
        serviceUrl: "http://127.0.0.1:8002/embed",
      },
      "serviceUrl must be http://host:port, without a path, got '127.0.0.1:8002'": {
        serviceUrl: "127.0.0.1:8002",
      },
      "tritonGrpcUrl must be host:port, got 'grpc://host:8001'": {
        backend: "triton_grpc" as const,
        tritonGrpcUrl: "grpc://host:8001",
      },
    }),
  )("%s", async (message, options) => {
    expect((await errorOf(open(options))).message).toBe(`[settings] ${message}`);
  });
});
