import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { FastifyInstance } from "fastify";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { embedRoutes } from "../../contract/embed-routes.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { ClientKeys } from "../embed/client-keys.ts";
import type { ImageEmbedder } from "../models/embedder.ts";
import { createMetrics, type EmbedMetrics } from "../models/metrics.ts";
import { HeldEmbedder, servedImages } from "../models/test-served-models.ts";
import { createOnnxEmbedder } from "../onnx/onnx-embedder.ts";
import { openServerModel } from "../onnx/server-model.ts";
import { type AppOptions, buildApp, type Limits } from "./app.ts";

const limits: Limits = {
  maxQueueSize: 64,
  maxQueueBytes: 10_000_000,
  maxBodyBytes: 1_000_000,
  maxImagePixels: 200_000,
};

let embedder: ImageEmbedder;
let jpeg: Buffer;
let app: FastifyInstance;
let port: number;
let metrics: EmbedMetrics;

beforeAll(async () => {
  jpeg = await picture("jpeg");
  const model = await openServerModel({
    spec: defaultModel,
    modelPath: await tinyModel(),
    intraOpThreads: 1,
  });
  embedder = createOnnxEmbedder(model, {
    maxBatchSize: 32,
    maxQueueDelayMicroseconds: 0,
  });
});
afterAll(() => embedder.close());
afterEach(async () => {
  app.server.closeAllConnections();
  await app.close();
});

async function listen(
  overrides: Partial<Limits> = {},
  options: Partial<AppOptions> = {},
): Promise<void> {
  metrics = createMetrics();
  app = buildApp({
    // several apps of this file share it
    models: servedImages({ ...shared(), close: async () => {} }),
    metrics,
    limits: { ...limits, ...overrides },
    ...options,
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  port = (app.server.address() as AddressInfo).port;
}

function shared(): ImageEmbedder {
  return {
    embed: (images, options) => embedder.embed(images, options),
    announce: () => embedder.announce(),
    ready: () => embedder.ready(),
    waitingItems: embedder.waitingItems,
    close: () => embedder.close(),
  };
}

async function connection() {
  const socket = connect(port, "127.0.0.1");
  let received = "";
  socket.on("data", (data) => {
    received += data.toString("latin1");
  });
  socket.on("error", () => {});
  const closed = once(socket, "close");
  await once(socket, "connect");
  return {
    socket,
    /** Waits for this number of responses. */
    async answers(count = 1): Promise<string> {
      await expect
        .poll(() => received.match(/HTTP\/1\.1 (?!100)\d/g)?.length ?? 0, {
          timeout: 10_000,
          interval: 2,
        })
        .toBeGreaterThanOrEqual(count);
      return received;
    },
    async fullResponse(): Promise<string> {
      await closed;
      return received;
    },
  };
}

function head(
  fields: Readonly<Record<string, string | number>>,
  line = "POST /embed HTTP/1.1",
): string {
  const all = { host: "x", "content-type": "image/jpeg", ...fields };
  return `${line}\r\n${Object.entries(all)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join("")}\r\n`;
}

function send(socket: Socket, body: Buffer, line?: string, fields = {}): void {
  socket.write(
    Buffer.concat([Buffer.from(head({ "content-length": body.length, ...fields }, line)), body]),
  );
}

/** Chunk of a body with `transfer-encoding: chunked`. */
function chunk(piece: Buffer): Buffer {
  const size = Buffer.from(`${piece.length.toString(16)}\r\n`);
  return Buffer.concat([size, piece, Buffer.from("\r\n")]);
}

async function post(
  bytes: Buffer,
  path = "/embed",
  headers: Readonly<Record<string, string>> = {},
) {
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method: "POST",
    headers: { "content-type": "image/jpeg", ...headers },
    body: new Uint8Array(bytes),
  });
  const body = (await response.json()) as {
    readonly embeddings: readonly (readonly number[])[];
    readonly error: { readonly code: string; readonly message: string; readonly image?: number };
  };
  return { status: response.status, headers: response.headers, body };
}

describe("an image", () => {
  const flat = (width: number, height: number, channels: 3 | 4 = 3) =>
    sharp({ create: { width, height, channels, background: "#804020" } });

  test.each<[string, () => Promise<Buffer>]>([
    ["of one pixel", () => flat(1, 1).png().toBuffer()],
    ["of 20 000 × 1", () => flat(20_000, 1).png().toBuffer()],
    ["of 1 × 20 000", () => flat(1, 20_000).jpeg().toBuffer()],
    ["of 16 bits", () => flat(30, 20).toColourspace("rgb16").png().toBuffer()],
    ["in CMYK", () => flat(30, 20).toColourspace("cmyk").jpeg().toBuffer()],
    ["with a colour profile", () => flat(30, 20).withIccProfile("p3").jpeg().toBuffer()],
    ["in grey with alpha", () => flat(30, 20, 4).toColourspace("b-w").png().toBuffer()],
    [
      "with frames",
      async () => {
        const frames = Buffer.alloc(20 * 40 * 3, 99);
        return sharp(frames, { raw: { width: 20, height: 40, channels: 3, pageHeight: 20 } })
          .webp()
          .toBuffer();
      },
    ],
  ])("%s is embedded", async (_, build) => {
    await listen();
    const { status, body } = await post(await build());
    expect([status, body.error]).toEqual([200, undefined]);
    expect(Math.hypot(...body.embeddings[0]!)).toBeCloseTo(1, 5);
  });

  test.each<[string, () => Promise<Buffer>, number, RegExp]>([
    [
      "is a bomb",
      () => flat(5_000, 5_000).png().toBuffer(),
      413,
      /^image 0 has 5000 × 5000 pixels, more than the limit of 200000$/,
    ],
    [
      "is only its first bytes",
      async () => jpeg.subarray(0, 4),
      422,
      /^image 0 cannot be decoded: ./,
    ],
    [
      "is a GIF",
      () => flat(4, 4).gif().toBuffer(),
      415,
      /^image 0 is not a JPEG, PNG or WebP file$/,
    ],
  ])("that %s is rejected with its index and the reason", async (_, build, status, message) => {
    await listen();
    const got = await post(await build());
    expect([got.status, got.body.error.image]).toEqual([status, 0]);
    expect(got.body.error.message).toMatch(message);
  });
});

describe("on a connection", () => {
  test("supports pipelined requests", async () => {
    await listen();
    const { socket, answers } = await connection();
    for (let count = 0; count < 3; count++) send(socket, jpeg);
    socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    const received = await answers(4);
    expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(Array(4).fill("HTTP/1.1 200"));
    expect(received).toMatch(/{"status":"ok"}$/);
  });

  test("answers HTTP/1.0 and closes the connection", async () => {
    await listen();
    const { socket, fullResponse } = await connection();
    send(socket, jpeg, "POST /embed HTTP/1.0");
    expect(await fullResponse()).toMatch(/^HTTP\/1\.1 200 .*connection: close.*"embeddings"/is);
  });

  test.each(["small", "large"])("embeds a %s chunked body", async (size) => {
    await listen();
    const { socket, answers } = await connection();
    // a small body is in a shared memory pool
    const side = size === "small" ? 20 : 300;
    const file = await picture("jpeg", { width: side, height: side });
    socket.write(head({ "transfer-encoding": "chunked" }));
    for (let at = 0; at < file.length; at += 400) {
      const piece = file.subarray(at, at + 400);
      socket.write(chunk(piece));
    }
    socket.write("0\r\n\r\n");
    expect(await answers()).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("stops reading a chunked body at the limit", async () => {
    await listen();
    const { socket, answers } = await connection();
    socket.write(head({ "transfer-encoding": "chunked" }));
    const piece = Buffer.alloc(300_000);
    for (let count = 0; count < 4; count++) {
      socket.write(chunk(piece));
    }
    expect(await answers()).toMatch(/^HTTP\/1\.1 413 .*the body is larger than 1000000 bytes/s);
  });

  test("rejects a Content-Length beyond the limit before the body arrives", async () => {
    await listen();
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": 1_000_001 }));
    expect(await answers()).toMatch(/^HTTP\/1\.1 413 .*the body is larger than 1000000 bytes/s);
  });

  test("a Content-Length that is too short truncates the image, and the remainder is not a request", async () => {
    await listen();
    const { socket, fullResponse } = await connection();
    send(socket, jpeg, undefined, { "content-length": 900 });
    expect(await fullResponse()).toMatch(
      /^HTTP\/1\.1 (422|400) .*(cannot be decoded|invalid HTTP)/s,
    );
  });

  test("a Content-Length that is too long ends with the connection", async () => {
    await listen();
    const { socket, fullResponse } = await connection();
    send(socket, jpeg, undefined, { "content-length": jpeg.length + 1 });
    socket.end();
    expect(await fullResponse()).toMatch(/^(HTTP\/1\.1 400 |$)/);
    await expect
      .poll(() => metrics.text())
      .toMatch(/status="(499|400)",model="[^"]*",client="none"} 1/);
  });

  test.each([
    ["two lengths", "content-length: 3\r\ncontent-length: 4\r\n"],
    ["an invalid length", "content-length: -1\r\n"],
    ["a length and chunks", "content-length: 3\r\ntransfer-encoding: chunked\r\n"],
    ["no host", ""],
  ])("%s are rejected with a reason", async (what, fields) => {
    await listen();
    const { socket, fullResponse } = await connection();
    const host = what === "no host" ? "" : "host: x\r\n";
    socket.write(`POST /embed HTTP/1.1\r\n${host}${fields}\r\n`);
    if (what === "no host") socket.end();
    expect(await fullResponse()).toMatch(/^HTTP\/1\.1 400 /);
  });

  test("rejects data that is not HTTP with a reason", async () => {
    await listen();
    const { socket, fullResponse } = await connection();
    socket.write("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    expect(await fullResponse()).toMatch(
      /^HTTP\/1\.1 400 .*"code":"bad_request","message":"invalid HTTP: /s,
    );
  });

  test("rejects headers beyond 16 KiB with a reason", async () => {
    await listen();
    const { socket, fullResponse } = await connection();
    socket.write(`GET / HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(20_000)}\r\n\r\n`);
    expect(await fullResponse()).toMatch(/^HTTP\/1\.1 431 .*the headers are larger than 16 KiB/s);
  });

  test("rejects slow headers with a reason", async () => {
    await listen();
    app.server.headersTimeout = 100;
    const { socket, fullResponse } = await connection();
    socket.write("GET / HTTP/1.1\r\nhost: x\r\n");
    expect(await fullResponse()).toMatch(/^HTTP\/1\.1 408 .*the request must arrive within/s);
  });

  test("answers a health check although idle connections are at the limit", async () => {
    await listen({ maxConnections: 3 });
    const idle = [await connection(), await connection(), await connection()];
    const { socket, answers } = await connection();
    socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    expect(await answers()).toMatch(/^HTTP\/1\.1 200 /);
    expect(await idle[0]!.fullResponse()).toBe("");
  });

  test("closes connections beyond the limit at once if all others have requests", async () => {
    await listen({ maxConnections: 2 });
    const busy = [await connection(), await connection()];
    for (const { socket } of busy) socket.write(head({ "content-length": jpeg.length }));
    await expect
      .poll(() => metrics.text())
      .toContain(`${embedMetrics.pendingBytes} ${2 * jpeg.length}`);
    const { fullResponse } = await connection();
    expect(await fullResponse()).toBe("");
    busy[0]!.socket.write(jpeg);
    expect(await busy[0]!.answers()).toMatch(/^HTTP\/1\.1 200 /);
  });

  test("answers Expect: 100-continue", async () => {
    await listen();
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": jpeg.length, expect: "100-continue" }));
    await once(socket, "data");
    socket.write(jpeg);
    expect(await answers()).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
  });
});

describe("while the model is busy", () => {
  let held: HeldEmbedder;

  async function busy(overrides: Partial<Limits> = {}): Promise<void> {
    held = new HeldEmbedder();
    await listen(overrides, { models: servedImages(held) });
  }
  afterEach(() => held.release());

  /** Sends a request that is queued for the model. */
  async function waiting() {
    const before = held.signals.length;
    const client = await connection();
    send(client.socket, jpeg);
    await expect.poll(() => held.signals.length, { interval: 1 }).toBe(before + 1);
    return client;
  }

  test("rejects a request beyond the limit before its body and keeps its connection", async () => {
    await busy({ maxQueueSize: 1 });
    await waiting();
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": jpeg.length }));
    expect(await answers()).toMatch(/^HTTP\/1\.1 429 .*retry-after: 1\r\n.*the limit is 1 items/is);
    held.release();
    await expect.poll(() => held.waitingItems).toBe(0);
    socket.write(jpeg);
    send(socket, jpeg);
    expect(await answers(2)).toMatch(/HTTP\/1\.1 200 /);
  });

  test("rejects a request with Expect: 100-continue without reading its body", async () => {
    await busy({ maxQueueSize: 1 });
    await waiting();
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": jpeg.length, expect: "100-continue" }));
    expect(await answers()).toMatch(/^HTTP\/1\.1 429 /);
  });

  test("counts bodies by their Content-Length", async () => {
    await busy({ maxQueueBytes: jpeg.length + 100 });
    await waiting();
    expect(await metrics.text()).toContain(`${embedMetrics.pendingBytes} ${jpeg.length}`);
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": 101 }));
    expect(await answers()).toMatch(
      new RegExp(`^HTTP/1\\.1 429 .*the queue has ${jpeg.length} bytes`, "s"),
    );
  });

  test("counts chunked bodies as they arrive", async () => {
    await busy({ maxQueueBytes: jpeg.length + 100 });
    await waiting();
    const { socket, answers } = await connection();
    socket.write(`${head({ "transfer-encoding": "chunked" })}c8\r\n${"x".repeat(200)}\r\n`);
    expect(await answers()).toMatch(/^HTTP\/1\.1 429 .*bytes of requests and responses/s);
  });

  test("releases bytes after the response or when the client disconnects", async () => {
    await busy();
    const [first, second] = [await waiting(), await waiting()];
    first.socket.destroy();
    await expect
      .poll(() => metrics.text())
      .toContain(`${embedMetrics.pendingBytes} ${jpeg.length}`);
    held.release();
    await second.answers();
    await expect.poll(() => metrics.text()).toContain(`${embedMetrics.pendingBytes} 0`);
  });

  test("a slow sender loses its slot to others", async () => {
    await busy({ maxQueueSize: 1 });
    const slow = await connection();
    slow.socket.write(head({ "content-length": 1000 }));
    const rejected = await connection();
    await expect.poll(() => metrics.text()).toContain(`${embedMetrics.pendingBytes} 1000`);
    rejected.socket.write(head({ "content-length": 10 }));
    expect(await rejected.answers()).toMatch(/^HTTP\/1\.1 429 /);
    await new Promise((resolve) => setTimeout(resolve, 2_100));
    await waiting();
    expect(await slow.fullResponse()).toMatch(
      /^HTTP\/1\.1 408 .*connection: close.*the body arrives too slowly while the queue is full: 0 of 1000 bytes in 2 s/is,
    );
  });

  test("drops the images of a request at its timeout", async () => {
    await busy();
    const answer = post(jpeg, "/embed?timeout=1500000");
    await expect.poll(() => held.signals.length).toBe(1);
    const { status, body } = await answer;
    expect([status, body.error]).toEqual([
      504,
      { code: "timeout", message: "no response within the timeout of 1500000 microseconds" },
    ]);
    expect(held.signals[0]?.aborted).toBe(true);
  });

  test("the timeout of a request includes receiving its body", async () => {
    await busy();
    const { socket, answers } = await connection();
    socket.write(head({ "content-length": 1000 }, "POST /embed?timeout=50000 HTTP/1.1"));
    expect(await answers()).toMatch(/^HTTP\/1\.1 504 /);
    expect(held.signals).toEqual([]);
  });

  test.each(["0", "-1", "1.5", "x", "", "3600000001"])(
    "rejects a timeout of '%s'",
    async (timeout) => {
      await busy();
      const { status, body } = await post(jpeg, `/embed?timeout=${timeout}`);
      expect([status, body.error.message]).toEqual([
        400,
        `timeout must be microseconds, 1 to 3600000000, got '${timeout}'`,
      ]);
    },
  );

  test("decodes nothing for a client that disconnected while sending", async () => {
    await busy();
    const { socket } = await connection();
    socket.write(
      Buffer.concat([Buffer.from(head({ "content-length": jpeg.length })), jpeg.subarray(0, 500)]),
    );
    await expect
      .poll(() => metrics.text())
      .toContain(`${embedMetrics.pendingBytes} ${jpeg.length}`);
    socket.destroy();
    await expect.poll(() => metrics.text()).toMatch(/status="499",model="[^"]*",client="none"} 1/);
    expect(await metrics.text()).not.toContain(`${embedMetrics.decodeSeconds}_count{`);
  });
});

describe("with an API key", () => {
  const apiKey = "0123456789abcdef";
  const keys = new ClientKeys([{ name: "default", key: apiKey }]);

  test.each<[string, Record<string, string>, string]>([
    ["none", {}, "none"],
    ["another", { authorization: "Bearer 0123456789abcdeg" }, "a different value"],
    ["no token", { authorization: "Bearer" }, "a different value"],
    ["another scheme", { authorization: `Basic ${apiKey}` }, "a different value"],
  ])("rejects a request with %s", async (_, headers, got) => {
    await listen({}, { keys });
    for (const path of ["/embed", "/embed/base64"]) {
      const answer = await post(jpeg, path, headers);
      expect(answer.status).toBe(401);
      expect(answer.headers.get("www-authenticate")).toBe('Bearer realm="clipstack"');
      expect(answer.body.error).toEqual({
        code: "unauthorized",
        message: `the header must be 'Authorization: Bearer' and the key of this server, got ${got}`,
      });
    }
    const { status } = await fetch(`http://127.0.0.1:${port}/metrics`, {
      headers,
    });
    expect(status).toBe(401);
  });

  test.each(["Bearer", "bearer", "BEARER"])(
    "accepts the key with the scheme %s",
    async (scheme) => {
      await listen({}, { keys });
      const headers = { authorization: `${scheme} ${apiKey}` };
      expect((await post(jpeg, "/embed", headers)).status).toBe(200);
      expect((await fetch(`http://127.0.0.1:${port}/metrics`, { headers })).status).toBe(200);
    },
  );

  test.each(Object.values(embedRoutes))(
    "requires the key on $method $path: $requiresKey",
    async ({ method, path, requiresKey }) => {
      await listen({}, { keys });
      const { status } = await fetch(`http://127.0.0.1:${port}${path}`, { method });
      expect(status === 401).toBe(requiresKey);
    },
  );

  test("has a key field on the page and a security scheme in OpenAPI", async () => {
    await listen({}, { keys });
    const [page, openApi] = await Promise.all(
      ["/", "/openapi.json"].map(async (path) =>
        (await fetch(`http://127.0.0.1:${port}${path}`)).text(),
      ),
    );
    expect(page).toContain('type="password"');
    expect(JSON.parse(openApi!).paths["/embed"].post.security).toEqual([{ key: [] }]);
  });
});
