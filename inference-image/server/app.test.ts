import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import type { FastifyInstance, InjectOptions } from "fastify";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type EmbedErrorCode,
  embedErrorResponse,
  embedErrorStatus,
  embedResponse,
} from "../../contract/embed-api.ts";
import {
  embedPaths,
  embedResponseHeaders,
  embedRoutes,
  pathOf,
} from "../../contract/embed-routes.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { quietMs } from "../../http/drain.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { type LocalEmbedder, openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { InferenceError } from "../../inference/threads/inference-error.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { createMetrics, type EmbedMetrics } from "../models/metrics.ts";
import { ServedModels } from "../models/served-models.ts";
import { HeldEmbedder, servedImages } from "../models/test-served-models.ts";
import { createOnnxEmbedder } from "../onnx/onnx-embedder.ts";
import { openServerModel } from "../onnx/server-model.ts";
import { buildApp, type Limits } from "./app.ts";

const embeddingWidth = defaultModel.embedding.width;

const limits: Limits = {
  maxQueueSize: 256,
  maxQueueBytes: 10_000_000,
  maxBodyBytes: 1_000_000,
  maxImagePixels: 200_000,
};

let jpeg: Buffer;
let png: Buffer;
let webp: Buffer;

beforeAll(async () => {
  [jpeg, png, webp] = await Promise.all([
    picture("jpeg", { seed: 1 }),
    picture("png", { seed: 2 }),
    picture("webp", { seed: 3 }),
  ]);
});

/** Returns the body and content type of a form. */
async function form(parts: Readonly<Record<string, Blob | string>>): Promise<InjectOptions> {
  const data = new FormData();
  for (const [name, part] of Object.entries(parts)) data.append(name.split(" ")[0]!, part);
  const request = new Request("http://localhost", { method: "POST", body: data });
  return {
    payload: Buffer.from(await request.arrayBuffer()),
    headers: { "content-type": request.headers.get("content-type")! },
  };
}

function post(url: string, options: InjectOptions): InjectOptions {
  return { method: "POST", url, ...options };
}

function raw(payload: Buffer, contentType = "image/jpeg"): InjectOptions {
  return post("/embed", { payload, headers: { "content-type": contentType } });
}

function base64(body: unknown): InjectOptions {
  return post("/embed/base64", {
    payload: typeof body === "string" ? body : JSON.stringify(body),
    headers: { "content-type": "application/json" },
  });
}

describe("with the tiny model", () => {
  let app: FastifyInstance;
  let local: LocalEmbedder;

  beforeAll(async () => {
    const modelPath = await tinyModel();
    const metrics = createMetrics();
    const model = await openServerModel({ spec: defaultModel, modelPath, intraOpThreads: 1 });
    const embedder = createOnnxEmbedder(model, {
      maxBatchSize: 32,
      maxQueueDelayMicroseconds: 5_000,
      observer: metrics.tower(defaultModel.name, "image"),
    });
    app = buildApp({ models: servedImages(embedder), metrics, limits });
    local = await openLocalEmbedder({ spec: defaultModel, modelPath, intraOpThreads: 1 });
  });
  afterAll(async () => {
    await Promise.all([app.close(), local.close()]);
  });

  async function embeddings(options: InjectOptions): Promise<readonly number[][]> {
    const response = await app.inject(options);
    expect(response.statusCode, response.body).toBe(200);
    const { embeddings, model } = embedResponse.parse(response.json());
    expect(model).toBe(defaultModel.name);
    return embeddings;
  }

  /** Compares embeddings, allowing for rounding to 8 decimals and another order of sums in another batch. */
  function expectSame(got: readonly number[] | undefined, expected: Float32Array | undefined) {
    expect(got).toHaveLength(embeddingWidth);
    const differences = got!.map((value, index) => Math.abs(value - expected![index]!));
    expect(Math.max(...differences)).toBeLessThan(1e-5);
  }

  test("embeds the files of a form in order", async () => {
    const got = await embeddings(
      post(
        "/embed",
        await form({
          a: new File([jpeg], "a.jpg"),
          note: "not a file",
          b: new File([png], "b.png"),
          c: new File([webp], "c.webp"),
        }),
      ),
    );
    const expected = await local.embed([jpeg, png, webp]);
    expect(got).toHaveLength(3);
    for (const [index, vector] of expected.entries()) expectSame(got[index], vector);
  });

  test.each(["image/jpeg", "image/png", "image/webp"])("embeds one raw %s body", async (type) => {
    const file = { "image/jpeg": jpeg, "image/png": png, "image/webp": webp }[type]!;
    const got = await embeddings(raw(file, type));
    expect(got).toHaveLength(1);
    expectSame(got[0], (await local.embed([file]))[0]);
  });

  test.each(["image/jpg", "IMAGE/PJPEG; name=a", "image/x-png"])(
    "embeds a raw %s body",
    async (type) => {
      const [got] = await embeddings(raw(type === "image/x-png" ? png : jpeg, type));
      expect(got).toHaveLength(embeddingWidth);
    },
  );

  test("uses the model of a form", async () => {
    const sent = async (model: string, query = "") =>
      await app.inject(post(`/embed${query}`, await form({ model, a: new File([jpeg], "a.jpg") })));
    expect((await sent(defaultModel.name)).statusCode).toBe(200);
    expect((await sent("")).statusCode).toBe(200);
    const unknown = await sent("no-such-model");
    expect([unknown.statusCode, unknown.json().error.code]).toEqual([404, "unknown_model"]);
    const both = await sent("another", `?model=${defaultModel.name}`);
    expect(both.json().error.message).toBe("model must not be repeated");
  });

  test("ignores a file input without a file", async () => {
    const got = await embeddings(
      post("/embed", await form({ other: new File([], ""), a: new File([jpeg], "a.jpg") })),
    );
    expect(got).toHaveLength(1);
  });

  test("ignores a byte order mark, and null for the model", async () => {
    const body = JSON.stringify({ images: [jpeg.toString("base64")], model: null });
    expect(await embeddings(base64(`\ufeff${body}`))).toHaveLength(1);
  });

  test("embeds base64 images", async () => {
    const got = await embeddings(
      base64({ images: [webp.toString("base64"), jpeg.toString("base64")] }),
    );
    const expected = await local.embed([webp, jpeg]);
    expect(got).toHaveLength(2);
    for (const [index, vector] of expected.entries()) expectSame(got[index], vector);
  });

  test.each(["/embed", "/embed/base64"])("%s responds with raw float32 on request", async (url) => {
    const request = url === "/embed" ? raw(jpeg) : base64({ images: [jpeg.toString("base64")] });
    const response = await app.inject({
      ...request,
      headers: { ...request.headers, accept: "application/octet-stream" },
    });
    expect(response.headers["content-type"]).toBe("application/octet-stream");
    expect(response.headers["x-embedding-shape"]).toBe("1,512");
    const bytes = response.rawPayload;
    const vector = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(4 * at));
    expectSame(vector, (await local.embed([jpeg]))[0]);
  });

  test("reports the duration of each step", async () => {
    const { headers } = await app.inject(raw(jpeg));
    const parts = [...String(headers["server-timing"]).matchAll(/(\w+);dur=(\d+\.\d{3})/g)];
    const times = Object.fromEntries(parts.map(([, name, ms]) => [name, Number(ms)]));
    expect(Object.keys(times)).toEqual(["receive", "decode", "queue", "infer", "total"]);
    expect(times.decode).toBeGreaterThan(0);
    expect(times.infer).toBeGreaterThan(0);
    expect(times.total).toBeGreaterThan(times.decode! + times.infer!);
  });

  test("batches concurrent requests", async () => {
    const executions = async () => {
      const { body } = await app.inject("/metrics");
      return Number(
        new RegExp(`^${embedMetrics.batchSize}_count (\\d+)`, "m").exec(body)?.[1] ?? 0,
      );
    };
    const before = await executions();
    const responses = await Promise.all(Array.from({ length: 16 }, () => app.inject(raw(jpeg))));
    expect(responses.map(({ statusCode }) => statusCode)).toEqual(Array(16).fill(200));
    expect((await executions()) - before).toBeLessThan(16);
  });

  test("is live while batches are computed", async () => {
    const work = base64({ images: Array(32).fill(jpeg.toString("base64")) });
    let unanswered = 8;
    const embedded = Array.from({ length: unanswered }, async () => {
      expect((await app.inject(work)).statusCode).toBe(200);
      unanswered -= 1;
    });
    // now all images are decoded and seven batches are left
    await Promise.race(embedded);
    let answers = 0;
    while (unanswered > 0) {
      expect((await app.inject("/healthz")).statusCode).toBe(200);
      answers += 1;
      // injected requests alone do not yield to the event loop
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(embedded);
    // a blocked event loop would process only a few between two batches
    expect(answers).toBeGreaterThan(2 * 7);
  });

  describe("rejects", () => {
    type Rejection = readonly [
      what: string,
      request: () => InjectOptions | Promise<InjectOptions>,
      code: EmbedErrorCode,
      /** Begins with the index of the image, if it is about one. */
      message: string | RegExp,
    ];
    const good = () => jpeg.toString("base64");
    const rejections: readonly Rejection[] = [
      [
        "an empty body",
        () => raw(Buffer.alloc(0)),
        "bad_request",
        "the body is empty: send an image file",
      ],
      [
        "no body and no type",
        () => post("/embed", {}),
        "bad_request",
        "the body is empty: send an image file",
      ],
      [
        "an unsupported body type",
        () => raw(jpeg, "image/gif"),
        "unsupported_media_type",
        "the Content-Type of /embed must be multipart/form-data, image/jpeg, image/png, image/webp, got image/gif; with curl: -F image=@FILE",
      ],
      [
        "JSON where images are expected",
        () => post("/embed", { payload: { images: [] } }),
        "unsupported_media_type",
        /^the Content-Type of \/embed must be .*; send base64 in JSON to \/embed\/base64$/,
      ],
      [
        "an image where JSON is expected",
        () => ({ ...raw(jpeg), url: "/embed/base64" }),
        "unsupported_media_type",
        "the Content-Type of /embed/base64 must be application/json, got image/jpeg",
      ],
      [
        "a compressed body",
        () => ({
          ...raw(jpeg),
          headers: { "content-type": "image/jpeg", "content-encoding": "gzip" },
        }),
        "unsupported_media_type",
        "the body must not be compressed, got content-encoding 'gzip'",
      ],
      [
        "an empty image",
        async () => post("/embed", await form({ a: new File([], "a.jpg") })),
        "unsupported_media_type",
        "image 0 is empty",
      ],
      [
        "bytes that are not an image",
        () => raw(Buffer.from("hello")),
        "unsupported_media_type",
        "image 0 is not a JPEG, PNG or WebP file",
      ],
      [
        "a truncated image",
        () => base64({ images: [good(), jpeg.subarray(0, 900).toString("base64")] }),
        "undecodable_image",
        /^image 1 cannot be decoded: /,
      ],
      [
        "an image with too many pixels",
        async () => raw(await picture("png", { width: 500, height: 401 }), "image/png"),
        "too_large",
        "image 0 has 500 × 401 pixels, more than the limit of 200000",
      ],
      [
        "a body that is too large",
        () => raw(Buffer.alloc(1_000_001)),
        "too_large",
        "the body is larger than 1000000 bytes",
      ],
      [
        "a form that is too large",
        async () =>
          post(
            "/embed",
            await form({
              a: new File([Buffer.alloc(600_000)], "a.jpg"),
              b: new File([Buffer.alloc(600_000)], "b.jpg"),
            }),
          ),
        "too_large",
        "the body is larger than 1000000 bytes",
      ],
      [
        "a form without a file",
        async () => post("/embed", await form({ note: "hello" })),
        "bad_request",
        "the form has no file: send each image as a file",
      ],
      [
        "a form with a file that is not an image",
        async () =>
          post(
            "/embed",
            await form({ a: new File([jpeg], "a.jpg"), b: new File(["hello"], "b.jpg") }),
          ),
        "unsupported_media_type",
        "image 1 is not a JPEG, PNG or WebP file",
      ],
      ["invalid JSON", () => base64("{"), "bad_request", /^failed to parse JSON: /],
      ["empty JSON", () => base64(""), "bad_request", "the body is empty"],
      ["JSON of another shape", () => base64([1]), "bad_request", "the body must be an object"],
      [
        "an unknown field",
        () => base64({ images: [good()], width: 8 }),
        "bad_request",
        "the body must not have the field 'width'",
      ],
      [
        "no images",
        () => base64({ images: [] }),
        "bad_request",
        "images must not be an empty list",
      ],
      [
        "too many images",
        () => base64({ images: Array(33).fill("AAAA") }),
        "too_large",
        "images must be 1 to 32, got 33",
      ],
      [
        "an image that is not a string",
        () => base64({ images: [good(), 7] }),
        "bad_request",
        "image 1 must be a string",
      ],
      [
        "an unknown path",
        () => ({ url: "/embeddings?x=1" }),
        "not_found",
        "no route has the path /embeddings",
      ],
      ["an invalid path", () => ({ url: "/%zz" }), "bad_request", /%zz/],
      [
        "an unsupported method",
        () => ({ method: "GET", url: "/embed" }),
        "method_not_allowed",
        "/embed requires POST, got GET",
      ],
    ];

    test.each(rejections)("%s", async (_, request, code, message) => {
      const response = await app.inject(await request());
      const { error } = embedErrorResponse.parse(response.json());
      const text = typeof message === "string" ? message : expect.stringMatching(message);
      const [, image] = /image (\d+) /.exec(String(message)) ?? [];
      const index = image === undefined ? undefined : Number(image);
      expect(error).toEqual({ code, message: text, image: index });
      expect(response.statusCode).toBe(embedErrorStatus[code]);
    });

    test.each([
      [
        "base64 without its padding",
        "QUJ",
        "its length must be a multiple of 4 with padding, got 3",
      ],
      ["base64 with a line break", "QUJD\nQUJ", 'unexpected "\\n" at position 4'],
      ["base64 of the URL alphabet", "QUJ_", 'unexpected "_" at position 3'],
      ["base64 with padding in the middle", "QQ==QUJD", 'unexpected "=" at position 2'],
      ["base64 with excess bits", "QR==", "its last characters have surplus bits"],
      [
        "a data URL",
        "data:image/jpeg;base64,QUJD",
        "it is a data URL; send only the part after its comma",
      ],
    ])("%s", async (_, text, problem) => {
      const response = await app.inject(base64({ images: ["QUJD", text] }));
      expect(response.json().error).toEqual({
        code: "bad_request",
        message: `image 1 is not base64: ${problem}`,
        image: 1,
      });
    });

    test("and lists the methods of a path", async () => {
      const response = await app.inject({ method: "DELETE", url: "/healthz" });
      expect(response.headers.allow).toBe("GET");
    });

    test("and continues to serve requests", async () => {
      expect(await embeddings(raw(jpeg))).toHaveLength(1);
    });
  });

  test("counts requests by route and status", async () => {
    const count = async () => {
      const { body } = await app.inject("/metrics");
      const counts = body.matchAll(
        /route="\/embed",status="415",model="[^"]*",client="none"} (\d+)/g,
      );
      return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
    };
    const before = await count();
    await app.inject(raw(Buffer.from("hello")));
    expect(await count()).toBe(before + 1);
  });

  test("measures decoding, queue, inference and batch size", async () => {
    await app.inject(raw(jpeg));
    const { body } = await app.inject("/metrics");
    for (const name of [
      embedMetrics.decodeSeconds,
      embedMetrics.queueSeconds,
      embedMetrics.inferSeconds,
      embedMetrics.overheadSeconds,
      embedMetrics.batchSize,
    ]) {
      expect(body).toMatch(new RegExp(`^${name}_count\\{model="openclip-vit-b32".*\\} [1-9]`, "m"));
    }
  });

  // the tiny model has no text tower
  test.each(Object.entries(embedRoutes).filter(([name]) => name !== "embedText"))(
    "responds with the media type of the contract on route %s",
    async (name, route) => {
      const { method, mediaType } = route;
      const requests: Partial<Record<string, InjectOptions>> = {
        embed: raw(jpeg),
        embedBase64: base64({ images: [jpeg.toString("base64")] }),
        openAiEmbeddings: {
          ...base64({ input: { image: jpeg.toString("base64") } }),
          url: embedPaths.openAiEmbeddings,
        },
      };
      const response = await app.inject(
        requests[name] ?? { method, url: pathOf(route, { model: defaultModel.name }) },
      );
      expect(response.statusCode).toBe(200);
      expect(String(response.headers["content-type"]).split(";")[0]).toBe(mediaType);
      expect(response.headers).toMatchObject(embedResponseHeaders);
    },
  );

  test.each<[string, InjectOptions]>([
    ["an unknown path", { url: "/none" }],
    ["a path that Fastify cannot decode", { url: "/%E0%A4%A" }],
    ["an invalid body", { ...raw(jpeg), payload: "no image" }],
  ])("sends the common headers with the error for %s", async (_, options) => {
    const response = await app.inject(options);
    expect(response.statusCode).toBeGreaterThanOrEqual(400);
    expect(response.headers).toMatchObject(embedResponseHeaders);
  });

  test("serves a page without external resources", async () => {
    const response = await app.inject("/");
    expect(response.headers["content-type"]).toMatch(/^text\/html/);
    expect(response.headers["content-security-policy"]).toMatch(/^default-src 'none'/);
    expect(response.body).not.toMatch(/(src|href)="(https?:)?\/\//);
  });

  test("describes its routes in OpenAPI", async () => {
    const document = (await app.inject("/openapi.json")).json();
    expect(document.openapi).toBe("3.1.0");
    const paths: Readonly<Record<string, object>> = document.paths;
    const described = Object.entries(paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
    );
    // the document itself and the HTML page have no operation
    const { openapi: _document, page: _page, ...routes } = embedRoutes;
    const declared = Object.values(routes).map(
      ({ method, path }) => `${method} ${path.replace(/:(\w+)/g, "{$1}")}`,
    );
    expect(described.toSorted()).toEqual(declared.toSorted());
    expect(document.components.schemas.EmbedBase64Request).toMatchObject({
      additionalProperties: false,
      properties: { images: { minItems: 1, maxItems: 32 } },
    });
    const names = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/(\w+)"/g)];
    for (const [, name] of names) expect(document.components.schemas).toHaveProperty(name!);
  });
});

describe("with a blocked embedder", () => {
  let embedder: HeldEmbedder;
  let app: FastifyInstance;
  let metrics: EmbedMetrics;

  function build(
    overrides: Partial<Limits> = {},
    served: () => ServedModels = () => servedImages(embedder),
  ) {
    embedder = new HeldEmbedder();
    metrics = createMetrics();
    app = buildApp({
      models: served(),
      metrics,
      limits: { ...limits, ...overrides },
    });
  }
  afterEach(async () => {
    embedder.release();
    await app.close();
  });

  test("rejects a request beyond the queue limit, with Retry-After", async () => {
    build({ maxQueueSize: 2 });
    const waiting = [app.inject(raw(jpeg)), app.inject(raw(jpeg))];
    await embedder.holds(2);
    const rejected = await app.inject(raw(jpeg));
    expect(rejected.statusCode).toBe(429);
    expect(rejected.headers["retry-after"]).toBe("1");
    expect(rejected.json()).toEqual({
      error: {
        code: "overloaded",
        message: "the queue is full, the limit is 2 items; retry later",
      },
    });
    embedder.release();
    for (const response of await Promise.all(waiting)) expect(response.statusCode).toBe(200);
  });

  test("rejects a request of several images that would exceed the limit", async () => {
    build({ maxQueueSize: 3 });
    const waiting = app.inject(raw(jpeg));
    await embedder.holds(1);
    const rejected = await app.inject(base64({ images: Array(3).fill(jpeg.toString("base64")) }));
    expect(rejected.statusCode).toBe(429);
    embedder.release();
    await waiting;
  });

  test("accepts a request larger than the limit if the queue is empty", async () => {
    build({ maxQueueSize: 1 });
    const accepted = app.inject(base64({ images: Array(3).fill(jpeg.toString("base64")) }));
    await embedder.holds(1);
    embedder.release();
    expect((await accepted).statusCode).toBe(200);
  });

  test("announces images only while they are decoded", async () => {
    build();
    const good = app.inject(raw(jpeg));
    expect((await app.inject(raw(Buffer.from("bad")))).statusCode).toBe(415);
    await embedder.holds(1);
    expect(embedder.announced).toBe(0);
    embedder.release();
    await good;
  });

  test("liveness does not depend on the model", async () => {
    build();
    embedder.isReady = false;
    for (const path of ["/healthz", "/health"]) {
      const response = await app.inject(path);
      expect([response.statusCode, response.json()]).toEqual([200, { status: "ok" }]);
    }
  });

  test("is ready if the embedder is", async () => {
    build();
    expect((await app.inject("/readyz")).json()).toEqual({ ready: true });
    embedder.isReady = false;
    const response = await app.inject("/readyz");
    expect([response.statusCode, response.json()]).toEqual([503, { ready: false }]);
  });

  test("is live, is not ready and rejects images while the model loads", async () => {
    build({}, () => new ServedModels([defaultModel]));
    expect((await app.inject("/healthz")).statusCode).toBe(200);
    expect((await app.inject("/readyz")).statusCode).toBe(503);
    const rejected = await app.inject(raw(jpeg));
    expect(rejected.statusCode).toBe(503);
    expect(rejected.headers["retry-after"]).toBe("1");
    expect(rejected.json().error).toEqual({ code: "unavailable", message: "the model is loading" });
  });

  test("answers accepted requests before it closes the embedder", async () => {
    build();
    const accepted = [app.inject(raw(jpeg)), app.inject(raw(png, "image/png"))];
    await embedder.holds(2);
    const closed = app.close();
    // enough time to close it too early
    await new Promise((resolve) => setTimeout(resolve, quietMs + 50));
    expect(embedder.closed).toBe(false);
    embedder.release();
    for (const response of await Promise.all(accepted)) expect(response.statusCode).toBe(200);
    await closed;
    expect(embedder.closed).toBe(true);
  });

  describe("listening on a port", () => {
    let port: number;

    // few enough that a busy machine opens all connections before the first counts as slow
    const maxQueueSize = 8;

    beforeEach(async () => {
      build({ maxQueueSize });
      await app.listen({ host: "127.0.0.1", port: 0 });
      port = (app.server.address() as AddressInfo).port;
    });

    /** Opens a connection and collects the data received until it is closed. */
    async function connection() {
      const socket = connect(port, "127.0.0.1");
      await once(socket, "connect");
      let received = "";
      socket.on("data", (data) => {
        received += data.toString("latin1");
      });
      const closed = once(socket, "close").then(() => received);
      return { socket, closed };
    }

    function rawRequest(): Buffer {
      const head = `POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: image/jpeg\r\ncontent-length: ${jpeg.length}\r\n\r\n`;
      return Buffer.concat([Buffer.from(head), jpeg]);
    }

    test("a stop answers accepted requests, rejects new ones and closes connections", async () => {
      const [busy, late, silent, half] = await Promise.all([
        connection(),
        connection(),
        connection(),
        connection(),
      ]);
      busy.socket.write(rawRequest());
      half.socket.write("POST /embed HTTP/1.1\r\n");
      await embedder.holds(1);

      const closed = app.close();
      late.socket.write("GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n");
      expect(await late.closed).toMatch(/^HTTP\/1.1 503 .*connection: close.*{"ready":false}$/is);
      expect(embedder.closed).toBe(false);

      embedder.release();
      expect(await busy.closed).toMatch(/^HTTP\/1.1 200 .*connection: close.*"embeddings"/is);
      await closed;
      expect(await silent.closed).toBe("");
      expect(await half.closed).toBe("");
      expect(embedder.closed).toBe(true);
    });

    test("does not wait for the rest of an incomplete body", async () => {
      const { socket, closed: received } = await connection();
      const request = rawRequest();
      const arrived = once(app.server, "request");
      socket.write(request.subarray(0, request.length / 2));
      await arrived;
      await app.close();
      expect(await received).toBe("");
    });

    test("counts bodies being received as queued images", async () => {
      const uploads = [];
      for (let upload = 0; upload < maxQueueSize; upload++) {
        const { socket } = await connection();
        const arrived = once(app.server, "request");
        socket.write(rawRequest().subarray(0, 300));
        await arrived;
        uploads.push(socket);
      }
      expect((await app.inject(raw(jpeg))).statusCode).toBe(429);
      uploads[0]?.destroy();
      await expect
        .poll(() => metrics.text())
        .toMatch(/route="\/embed",status="499",model="[^"]*",client="none"} 1/);
      const accepted = app.inject(raw(jpeg));
      await embedder.holds(1);
      embedder.release();
      expect((await accepted).statusCode).toBe(200);
    });

    test("rejects new images while draining", async () => {
      const [busy, late] = await Promise.all([connection(), connection()]);
      busy.socket.write(rawRequest());
      await embedder.holds(1);
      const closed = app.close();
      late.socket.write(rawRequest());
      expect(await late.closed).toMatch(
        /^HTTP\/1.1 503 .*{"error":{"code":"unavailable","message":"the server is stopping"}}$/is,
      );
      embedder.release();
      await Promise.all([busy.closed, closed]);
    });

    test("answers a request on an open connection just after the start of a stop", async () => {
      const { socket, closed } = await connection();
      const stopped = app.close();
      await new Promise((resolve) => setTimeout(resolve, quietMs / 6));
      socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
      expect(await closed).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
      await stopped;
    });

    test("answers a request that arrives while the process is suspended", async () => {
      const { socket, closed } = await connection();
      const stopped = app.close();
      await new Promise((resolve) => setTimeout(resolve, quietMs / 2));
      // late timers fire before sockets are read
      await new Promise(setImmediate);
      socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
      const until = performance.now() + 3 * quietMs;
      while (performance.now() < until);
      expect(await closed).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
      await stopped;
    });

    test("keeps idle connections open until no request has arrived for a quiet period", async () => {
      const connections = await Promise.all(Array.from({ length: 6 }, connection));
      const stopped = app.close();
      for (const { socket, closed } of connections) {
        await new Promise((resolve) => setTimeout(resolve, quietMs / 2));
        socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
        expect(await closed).toMatch(/^HTTP\/1.1 200 .*connection: close/is);
      }
      await stopped;
    });

    test("resets no connection that reaches the listener before it closes, on a starved machine", async () => {
      const ends: Promise<string>[] = [];
      let closed = false;
      const closing = app.close().then(() => {
        closed = true;
      });
      while (!closed) {
        for (let count = 0; count < 8; count++) {
          const socket = connect(port, "127.0.0.1", () =>
            socket.write("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"),
          );
          const received = once(socket, "data").then(([data]) => String(data).slice(0, 12));
          ends.push(received.catch(({ code }: NodeJS.ErrnoException) => code ?? "no code"));
        }
        // the kernel has connected them while this process is suspended
        await new Promise(process.nextTick);
        const until = performance.now() + 40;
        while (performance.now() < until);
        for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
      }
      await closing;
      const answers = new Set(await Promise.all(ends));
      answers.delete("ECONNREFUSED");
      expect(answers).toEqual(new Set(["HTTP/1.1 200"]));
    });

    test("reads rejected bodies during a stop, so that no reset precedes the response", async () => {
      const { socket, closed } = await connection();
      const stopped = app.close();
      const whole = rawRequest();
      socket.write(whole.subarray(0, 300));
      await new Promise((resolve) => setTimeout(resolve, 3 * quietMs));
      const early = socket.bytesRead;
      socket.write(whole.subarray(300));
      expect(await closed).toMatch(/^HTTP\/1.1 503 .*connection: close/is);
      expect(early).toBe(0);
      await stopped;
    });

    test("drops a request after its client disconnected", async () => {
      const { socket } = await connection();
      socket.write(rawRequest());
      await embedder.holds(1);
      expect(embedder.signals[0]?.aborted).toBe(false);
      socket.destroy();
      await expect.poll(() => embedder.signals[0]?.aborted).toBe(true);
      expect(await metrics.text()).toMatch(
        /route="\/embed",status="499",model="[^"]*",client="none"} 1/,
      );
    });
  });

  test("hides the message of an unexpected error", async () => {
    build();
    const answer = app.inject(raw(jpeg));
    await embedder.holds(1);
    embedder.release(new TypeError("secret"));
    const response = await answer;
    expect(response.statusCode).toBe(500);
    expect(response.json().error).toEqual({
      code: "internal",
      message: "internal error; see the server log",
    });
  });

  test("returns the error of the backend", async () => {
    build();
    const answer = app.inject(raw(jpeg));
    await embedder.holds(1);
    embedder.release(new InferenceError("failed", "out of memory"));
    expect((await answer).json().error).toEqual({ code: "internal", message: "out of memory" });
  });
});
