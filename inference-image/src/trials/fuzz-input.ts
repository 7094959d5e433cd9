import { deflateSync, gzipSync } from "node:zlib";
import fc, { type Arbitrary } from "fast-check";
import { embedPaths, timeoutParameter } from "../contract/embed-api.ts";
import { models, pixelBytes } from "../contract/model-signature.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { inferenceService, type ModelInferRequest } from "../triton/wire-grpc.ts";
import type { TrialImage } from "./trial-images.ts";

/** What is sent to a server. Plain data: it is saved when something goes wrong, and sent again. */
export type FuzzInput = HttpInput | SocketInput | GrpcInput;

export const fuzzTargets = ["embed", "triton-http", "triton-metrics", "triton-grpc"] as const;
export type FuzzTarget = (typeof fuzzTargets)[number];

export interface HttpInput {
  readonly kind: "http";
  readonly target: Exclude<FuzzTarget, "triton-grpc">;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Bytes on a connection of its own. */
export interface SocketInput {
  readonly kind: "socket";
  readonly target: FuzzTarget;
  readonly pieces: readonly Uint8Array[];
  /** What comes after them: the end of the stream, a cut, or nothing for a moment. */
  readonly ending: "end" | "cut" | "wait";
}

/** A message on a new stream. */
export interface GrpcInput {
  readonly kind: "grpc";
  readonly target: "triton-grpc";
  readonly path: string;
  readonly message: Uint8Array;
  readonly deadlineMs?: number;
}

/** All inputs, of all endpoints. Large images are rare: a fuzz is about many inputs. */
export function fuzzInputs(images: readonly TrialImage[]): Arbitrary<FuzzInput> {
  const image = mutatedImages(images);
  const weighted: readonly [number, Arbitrary<FuzzInput>][] = [
    [16, rawImages(image)],
    [14, forms(image)],
    [16, base64Bodies(image)],
    [8, anyHttp()],
    [14, inferJson()],
    [12, inferBinary(image)],
    [4, control()],
    [10, grpcCalls(image)],
    [8, sockets(image)],
  ];
  return fc.oneof(...weighted.map(([weight, arbitrary]) => ({ weight, arbitrary })));
}

const empty = Buffer.alloc(0);
const text = (value: string) => Buffer.from(value, "utf8");

/** Bytes, changed here and there. */
function mutated(original: Arbitrary<Buffer>): Arbitrary<Buffer> {
  const position = fc.oneof(fc.nat(64), fc.nat(1_000_000));
  const change = fc.oneof(
    fc.record({ what: fc.constant("set" as const), at: position, value: fc.nat(255) }),
    fc.record({ what: fc.constant("flip" as const), at: position, value: fc.nat(7) }),
    fc.record({ what: fc.constant("insert" as const), at: position, value: fc.nat(300) }),
    fc.record({ what: fc.constant("remove" as const), at: position, value: fc.nat(300) }),
    fc.record({ what: fc.constant("cut" as const), at: position, value: fc.constant(0) }),
    fc.record({ what: fc.constant("size" as const), at: position, value: fc.nat(3) }),
  );
  return fc
    .tuple(original, fc.array(change, { maxLength: 4 }))
    .map(([bytes, changes]) => changes.reduce(applied, bytes));
}

const sizes = [0, 0x7fffffff, 0xffffffff, 0x00ffffff];

function applied(
  bytes: Buffer,
  { what, at, value }: { readonly what: string; readonly at: number; readonly value: number },
): Buffer {
  if (bytes.length === 0) return bytes;
  const position = at % bytes.length;
  const copy = Buffer.from(bytes);
  switch (what) {
    case "set":
      copy[position] = value;
      return copy;
    case "flip":
      copy[position]! ^= 1 << value;
      return copy;
    case "insert":
      return Buffer.concat([
        copy.subarray(0, position),
        Buffer.alloc(value, value),
        copy.subarray(position),
      ]);
    case "remove":
      return Buffer.concat([copy.subarray(0, position), copy.subarray(position + value)]);
    case "size":
      // what a field of lengths may say
      if (position + 4 <= copy.length) copy.writeUInt32BE(sizes[value] ?? 0, position);
      return copy;
    default:
      return copy.subarray(0, position);
  }
}

function mutatedImages(images: readonly TrialImage[]): Arbitrary<Buffer> {
  const some = fc.constantFrom(...images.map(({ bytes }) => bytes));
  const spliced = fc
    .tuple(some, some, fc.double({ min: 0, max: 1, noNaN: true }))
    .map(([a, b, share]) =>
      Buffer.concat([
        a.subarray(0, Math.floor(a.length * share)),
        b.subarray(Math.floor(b.length * share)),
      ]),
    );
  return fc.oneof(
    { weight: 2, arbitrary: some },
    { weight: 6, arbitrary: mutated(some) },
    { weight: 1, arbitrary: mutated(spliced) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)) },
    {
      weight: 1,
      arbitrary: fc
        .constantFrom(
          "",
          "\xff\xd8\xff",
          "\x89PNG\r\n\x1a\n",
          "RIFF\0\0\0\0WEBP",
          "GIF89a",
          "<svg/>",
        )
        .map((head) => Buffer.from(head, "latin1")),
    },
  );
}

const timeout = fc.oneof(
  { weight: 6, arbitrary: fc.constant("") },
  fc
    .constantFrom("1", "500", "20000", "5000000", "0", "-1", "x", "1e6", "", "99999999999999")
    .map((value) => `?${timeoutParameter}=${value}`),
);
const extraHeaders = fc.dictionary(
  fc.constantFrom(
    "accept",
    "accept-encoding",
    "content-encoding",
    "expect",
    "authorization",
    "origin",
    "range",
    "x-a",
    "cookie",
    "if-none-match",
  ),
  fc.oneof(
    fc.constantFrom(
      "application/octet-stream",
      "*/*",
      "gzip",
      "deflate",
      "identity",
      "br",
      "Bearer x",
      "100-continue",
      "bytes=0-1",
    ),
    fc.string({ maxLength: 20 }).map((value) => value.replace(/[^\x20-\x7e]/g, "")),
  ),
  { maxKeys: 2 },
);

function rawImages(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const type = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom("image/jpeg", "image/png", "image/webp") },
    fc.constantFrom(
      "image/gif",
      "application/json",
      "text/plain",
      "",
      "image/jpeg; a=b",
      "multipart/form-data",
    ),
  );
  return fc
    .record({ body: image, type, timeout, extra: extraHeaders })
    .map(({ body, type, timeout, extra }) => ({
      kind: "http",
      target: "embed",
      method: "POST",
      path: `${embedPaths.embed}${timeout}`,
      headers: { ...extra, "content-type": type },
      body,
    }));
}

function forms(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const head = fc.constantFrom(
    'content-disposition: form-data; name="images"; filename="a.jpg"',
    'Content-Disposition: form-data; name="images"; filename="a.jpg"\r\nContent-Type: image/png',
    'content-disposition: form-data; name="note"',
    "content-type: application/octet-stream",
    "",
    "content-disposition",
    `x: ${"y".repeat(20_000)}`,
  );
  const boundary = fc.constantFrom("b", "----x", "a b", "", "z".repeat(300));
  const parts = fc.array(fc.record({ head, content: image }), { maxLength: 5 });
  const whole = fc.record({ parts, boundary }).map(({ parts, boundary }) => ({
    boundary,
    body: Buffer.concat([
      ...parts.flatMap(({ head, content }) => [
        text(`--${boundary}\r\n${head}\r\n\r\n`),
        content,
        text("\r\n"),
      ]),
      text(`--${boundary}--\r\n`),
    ]),
  }));
  return fc
    .record({
      whole,
      told: fc.boolean(),
      changes: fc.boolean(),
      at: fc.nat(),
      timeout,
      extra: extraHeaders,
    })
    .map(({ whole, told, changes, at, timeout, extra }) => ({
      kind: "http",
      target: "embed",
      method: "POST",
      path: `${embedPaths.embed}${timeout}`,
      headers: {
        ...extra,
        "content-type": `multipart/form-data${told || at % 4 > 0 ? `; boundary="${whole.boundary}"` : ""}`,
      },
      body: changes
        ? applied(whole.body, { what: at % 2 ? "cut" : "set", at, value: at % 256 })
        : whole.body,
    }));
}

function base64Bodies(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const one = fc.oneof(
    { weight: 8, arbitrary: image.map((bytes) => bytes.toString("base64")) },
    image.map((bytes) => bytes.toString("base64url")),
    fc.string({ maxLength: 40 }),
    fc.jsonValue(),
  );
  const value = fc.oneof(
    { weight: 8, arbitrary: fc.array(one, { maxLength: 4 }).map((images) => ({ images })) },
    fc.constantFrom(0, 33, 40).map((count) => ({ images: Array(count).fill("AAAA") })),
    fc.record({ images: fc.array(one, { maxLength: 2 }), extra: fc.jsonValue() }),
    fc.jsonValue(),
  );
  const plain = value.map((json) => text(JSON.stringify(json) ?? ""));
  const body = fc.oneof(
    { weight: 4, arbitrary: plain },
    { weight: 3, arbitrary: mutated(plain) },
    plain.map((bytes) => text(bytes.toString().replaceAll("/", "\\/"))),
    fc
      .constantFrom("[".repeat(5_000), '{"images":'.repeat(500), '{"images":["', '"', "null", " ")
      .map(text),
  );
  const type = fc.oneof(
    { weight: 8, arbitrary: fc.constant("application/json") },
    fc.constantFrom("application/json; charset=utf-8", "text/json", "", "image/png"),
  );
  return fc
    .record({ body, type, timeout, extra: extraHeaders })
    .map(({ body, type, timeout, extra }) => ({
      kind: "http",
      target: "embed",
      method: "POST",
      path: `${embedPaths.embedBase64}${timeout}`,
      headers: { ...extra, "content-type": type },
      body,
    }));
}

const modelNames = [...models.map(({ name }) => name), "none", "..", "%00", "a".repeat(300)];
const modelPaths = modelNames.flatMap((model) =>
  [
    "",
    "/ready",
    "/config",
    "/stats",
    "/infer",
    "/versions/1",
    "/versions/1/infer",
    "/versions/x",
    "/versions/99/ready",
  ].map((rest) => `/v2/models/${model}${rest}`),
);
const anyPath = fc.oneof(
  fc.constantFrom(...Object.values(embedPaths), ...Object.values(oipPaths), ...modelPaths),
  fc.constantFrom(
    "/v2",
    "/v2/models/stats",
    "/v2/repository/index",
    "/metrics",
    "/v2/health",
    "//",
    "/../x",
    "/%zz",
    "/?a=b",
    `/${"a".repeat(4_000)}`,
  ),
  fc.webPath().map((path) => `/${path}`),
);

function anyHttp(): Arbitrary<HttpInput> {
  return fc.record({
    kind: fc.constant("http" as const),
    target: fc.constantFrom("embed" as const, "triton-http" as const, "triton-metrics" as const),
    method: fc.constantFrom("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"),
    path: anyPath,
    headers: extraHeaders,
    body: fc.oneof(
      { weight: 4, arbitrary: fc.constant(empty) },
      fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
    ),
  });
}

const inferPath = fc
  .constantFrom(...modelNames.slice(0, 6))
  .map((model) => `/v2/models/${model}/infer`);
const dataType = fc.constantFrom("FP32", "UINT8", "BYTES", "INT64", "FP16", "BOOL", "X", "");
const dim = fc.oneof(fc.constantFrom(1, 3, 224, 512, 0, -1, 33), fc.integer(), fc.double());
const shape = fc.oneof(
  fc.constantFrom([1, 3, 224, 224], [1, 224, 224, 3], [1, 1], [2, 1], [1], []),
  fc.array(dim, { maxLength: 5 }),
);
const parameters = fc.dictionary(
  fc.constantFrom(
    "classification",
    "binary_data",
    "binary_data_size",
    "priority",
    "timeout",
    "sequence_id",
    "shared_memory_region",
    "a",
  ),
  fc.oneof(fc.constantFrom(0, 1, 5, -1, 1e18, true, "x", null), fc.jsonValue()),
  { maxKeys: 2 },
);

function tensorSpec(): Arbitrary<Record<string, unknown>> {
  return fc.record(
    {
      name: fc.oneof(
        { weight: 4, arbitrary: fc.constantFrom("image", "encoded", "embedding") },
        fc.string(),
      ),
      datatype: dataType,
      shape,
      parameters,
      data: fc.oneof(
        fc.array(fc.oneof(fc.integer(), fc.string({ maxLength: 5 })), { maxLength: 6 }),
        fc.jsonValue(),
      ),
    },
    { requiredKeys: ["name"] },
  );
}

function inferRequest(): Arbitrary<Record<string, unknown>> {
  return fc.record(
    {
      id: fc.oneof(fc.string({ maxLength: 5 }), fc.jsonValue()),
      inputs: fc.oneof(
        { weight: 6, arbitrary: fc.array(tensorSpec(), { maxLength: 3 }) },
        fc.jsonValue(),
      ),
      outputs: fc.oneof(fc.array(tensorSpec(), { maxLength: 2 }), fc.jsonValue()),
      parameters: fc.oneof(parameters, fc.jsonValue()),
    },
    { requiredKeys: ["inputs"] },
  );
}

function inferJson(): Arbitrary<HttpInput> {
  const plain = inferRequest().map((json) => text(JSON.stringify(json)));
  const compressed = fc
    .tuple(plain, fc.constantFrom("gzip", "deflate"))
    .map(([bytes, encoding]) => ({
      body: encoding === "gzip" ? gzipSync(bytes) : deflateSync(bytes),
      headers: { "content-encoding": encoding } as Record<string, string>,
    }));
  const body = fc.oneof(
    { weight: 5, arbitrary: plain.map((bytes) => ({ body: bytes, headers: {} })) },
    { weight: 3, arbitrary: mutated(plain).map((bytes) => ({ body: bytes, headers: {} })) },
    compressed,
    // a bomb
    fc.constant({
      body: gzipSync(Buffer.alloc(2_000_000, " ")),
      headers: { "content-encoding": "gzip" },
    }),
    fc.constant({ body: text("not gzip"), headers: { "content-encoding": "gzip" } }),
  );
  return fc.record({ body, path: inferPath, extra: extraHeaders }).map(({ body, path, extra }) => ({
    kind: "http",
    target: "triton-http",
    method: "POST",
    path,
    headers: { ...extra, "content-type": "application/json", ...body.headers },
    body: body.body,
  }));
}

/** A header in JSON, then the tensors: right ones, with wrong sizes and lengths among them. */
function inferBinary(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const encoded = image.map((bytes) => {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(bytes.length);
    return {
      model: "openclip_vit_b32_jpeg",
      datatype: "BYTES",
      shape: [1, 1],
      data: Buffer.concat([size, bytes]),
    };
  });
  const pixels = fc.nat(255).map((value) => ({
    model: "openclip_vit_b32_u8",
    datatype: "UINT8",
    shape: [1, 224, 224, 3],
    data: Buffer.alloc(pixelBytes, value),
  }));
  const floats = fc.nat(255).map((value) => ({
    model: "openclip_vit_b32",
    datatype: "FP32",
    shape: [1, 3, 224, 224],
    // every value of it, NaN among them
    data: Buffer.alloc(4 * pixelBytes, value),
  }));
  const request = fc.oneof(
    { weight: 6, arbitrary: encoded },
    { weight: 2, arbitrary: pixels },
    { weight: 1, arbitrary: floats },
  );
  const lie = fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.integer({ min: -20, max: 20 }));
  return fc
    .record({
      request,
      sizeLie: lie,
      headerLie: lie,
      shapeLie: lie,
      damage: mutated(fc.constant(Buffer.alloc(1))),
      spoil: fc.nat(5),
      extra: extraHeaders,
    })
    .chain(({ request, sizeLie, headerLie, shapeLie, spoil, extra }) => {
      const json = JSON.stringify({
        inputs: [
          {
            name: "image",
            datatype: request.datatype,
            shape: [request.shape[0]! + shapeLie, ...request.shape.slice(1)],
            parameters: { binary_data_size: request.data.length + sizeLie },
          },
        ],
        outputs: [{ name: "embedding", parameters: { binary_data: spoil % 2 === 0 } }],
      });
      const whole = Buffer.concat([text(json), request.data]);
      const body = spoil === 0 ? mutated(fc.constant(whole)) : fc.constant(whole);
      return body.map(
        (bytes): HttpInput => ({
          kind: "http",
          target: "triton-http",
          method: "POST",
          path: `/v2/models/${request.model}/infer`,
          headers: {
            ...extra,
            "content-type": "application/octet-stream",
            "inference-header-content-length": String(Buffer.byteLength(json) + headerLie),
          },
          body: bytes,
        }),
      );
    });
}

/** Loading and unloading, with configurations that fit and that do not. */
function control(): Arbitrary<HttpInput> {
  const config = fc.oneof(
    fc.constant(JSON.stringify({ max_batch_size: 32 })),
    fc.jsonValue().map((value) => JSON.stringify(value) ?? ""),
    fc.string({ maxLength: 40 }),
  );
  const body = fc.oneof(
    fc.constant(empty),
    config.map((value) => text(JSON.stringify({ parameters: { config: value } }))),
    mutated(config.map((value) => text(JSON.stringify({ parameters: { config: value } })))),
    fc.jsonValue().map((value) => text(JSON.stringify(value) ?? "")),
  );
  const path = fc.oneof(
    fc.constant("/v2/repository/index"),
    fc
      .tuple(fc.constantFrom(...modelNames), fc.constantFrom("load", "unload"))
      .map(([model, what]) => `/v2/repository/models/${model}/${what}`),
  );
  return fc.record({
    kind: fc.constant("http" as const),
    target: fc.constant("triton-http" as const),
    method: fc.constant("POST"),
    path,
    headers: fc.constant({}),
    body,
  });
}

const methodPaths = [
  // those of a stream would have to be sent as one
  ...Object.values(inferenceService)
    .filter((method) => !method.requestStream)
    .map(({ path }) => path),
  "/grpc.health.v1.Health/Check",
  "/inference.GRPCInferenceService/None",
  "/a/b",
];
const inferMethod = inferenceService.ModelInfer!;

function grpcCalls(image: Arbitrary<Buffer>): Arbitrary<GrpcInput> {
  const model = fc.constantFrom(...modelNames);
  const infer = fc
    .record({
      model,
      image,
      datatype: dataType,
      shape: fc.constantFrom([1, 1], [2, 1], [0], [1, 3, 224, 224], [-1]),
      raw: fc.boolean(),
      name: fc.constantFrom("image", "x", ""),
    })
    .map(({ model, image, datatype, shape, raw, name }): ModelInferRequest => {
      const size = Buffer.alloc(4);
      size.writeUInt32LE(image.length);
      return {
        model_name: model,
        inputs: [
          { name, datatype, shape, ...(raw ? {} : { contents: { bytes_contents: [image] } }) },
        ],
        raw_input_contents: raw ? [Buffer.concat([size, image])] : [],
      };
    });
  const good = image.map((bytes): ModelInferRequest => {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(bytes.length);
    return {
      model_name: "openclip_vit_b32_jpeg",
      inputs: [{ name: "image", datatype: "BYTES", shape: [1, 1] }],
      raw_input_contents: [Buffer.concat([size, bytes])],
    };
  });
  const message = fc.oneof(infer, good).map((request) => inferMethod.requestSerialize(request));
  const inferred = fc.record({
    kind: fc.constant("grpc" as const),
    target: fc.constant("triton-grpc" as const),
    path: fc.constant(inferMethod.path),
    message: fc.oneof(
      { weight: 3, arbitrary: message },
      { weight: 2, arbitrary: mutated(message) },
    ),
    deadlineMs: fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, fc.constantFrom(1, 10)),
  });
  const any = fc.record({
    kind: fc.constant("grpc" as const),
    target: fc.constant("triton-grpc" as const),
    path: fc.constantFrom(...methodPaths),
    message: fc.oneof(
      fc.constant(empty),
      fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes)),
      mutated(message),
      // field 1 is the name of a model in most messages
      model.map((name) => Buffer.concat([Buffer.from([0x0a, name.length & 0x7f]), text(name)])),
    ),
    deadlineMs: fc.constant(undefined),
  });
  return fc.oneof({ weight: 3, arbitrary: inferred }, { weight: 2, arbitrary: any });
}

function sockets(image: Arbitrary<Buffer>): Arbitrary<SocketInput> {
  const line = fc.oneof(
    fc.constantFrom(
      "GET / HTTP/1.1",
      "POST /embed HTTP/1.1",
      "POST /embed/base64 HTTP/1.1",
      "POST /v2/models/openclip_vit_b32/infer HTTP/1.1",
      "GET /healthz HTTP/1.0",
      "POST /embed HTTP/1.0",
      "GET / HTTP/9.9",
      "GET /",
      "BREW / HTTP/1.1",
      "CONNECT a:1 HTTP/1.1",
      "GET http://other/ HTTP/1.1",
      "GET * HTTP/1.1",
      "OPTIONS * HTTP/1.1",
      "PRI * HTTP/2.0",
    ),
    fc.string({ maxLength: 60 }),
  );
  const header = fc.oneof(
    fc.constantFrom(
      "host: x",
      "host: x",
      "content-type: image/jpeg",
      "content-type: application/json",
      "content-length: 10",
      "content-length: 10\r\ncontent-length: 11",
      "content-length: -1",
      "content-length: 99999999999999999999",
      "content-length: 5",
      "transfer-encoding: chunked",
      "transfer-encoding: chunked\r\ncontent-length: 3",
      "transfer-encoding: gzip",
      "connection: close",
      "connection: upgrade\r\nupgrade: h2c",
      "expect: 100-continue",
      "expect: x",
      ": x",
      "a b: c",
      `x: ${"y".repeat(20_000)}`,
    ),
    fc.string({ maxLength: 60 }),
  );
  const chunked = fc.constantFrom(
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhel",
    "zz\r\n",
    "ffffffffff\r\nx",
    "0\r\n\r\n",
    "5;a=b\r\nhello\r\n0\r\nt: x\r\n\r\n",
  );
  const body = fc.oneof(
    fc.constant(empty),
    chunked.map(text),
    image,
    fc.uint8Array({ maxLength: 100 }).map((bytes) => Buffer.from(bytes)),
  );
  const request = fc
    .tuple(line, fc.array(header, { maxLength: 5 }), body)
    .map(([first, headers, content]) =>
      Buffer.concat([text(`${[first, ...headers].join("\r\n")}\r\n\r\n`), content]),
    );
  const http2 = fc
    .uint8Array({ maxLength: 100 })
    .map((bytes) => Buffer.concat([text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Buffer.from(bytes)]));
  const piece = fc.oneof(
    { weight: 6, arbitrary: request },
    { weight: 2, arbitrary: mutated(request) },
    { weight: 1, arbitrary: http2 },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
  );
  return fc.record({
    kind: fc.constant("socket" as const),
    target: fc.constantFrom(...fuzzTargets),
    pieces: fc.array(piece, { minLength: 1, maxLength: 3 }),
    ending: fc.constantFrom("end" as const, "cut" as const, "wait" as const),
  });
}
