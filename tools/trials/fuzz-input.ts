import { deflateSync, gzipSync } from "node:zlib";
import fc, { type Arbitrary } from "fast-check";
import type { SampleImage } from "../../bench/run/reference.ts";
import { joinElements } from "../../client/triton/wire.ts";
import {
  inferenceService,
  type ModelInferRequest,
  methodOf,
} from "../../client/triton/wire-grpc.ts";
import { headerLengthField } from "../../client/triton/wire-http.ts";
import { embedPaths, timeoutParameter } from "../../contract/embed-api.ts";
import { models, pixelBytes } from "../../contract/model-signature.ts";
import { oipPaths } from "../../contract/oip-paths.ts";

/** What is sent to a server. Plain data: it is saved when something goes wrong, and sent again. */
export type FuzzInput = HttpInput | SocketInput | GrpcInput;

const fuzzTargets = ["embed", "triton-http", "triton-metrics", "triton-grpc"] as const;
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

/**
 * All inputs, of all endpoints: valid requests, most of them with something changed. Large images are rare: a fuzz is about
 * many inputs.
 */
export function fuzzInputs(images: readonly SampleImage[]): Arbitrary<FuzzInput> {
  const image = mutatedImages(images);
  return weighted<FuzzInput>(
    [16, changed(rawImages(image))],
    [14, changed(forms(image))],
    [16, changed(base64Bodies(image))],
    [14, changed(compressed(inferJson()))],
    [12, changed(inferBinary(image))],
    [4, control()],
    [8, anyHttp()],
    [10, grpcCalls(image)],
    [8, sockets(image)],
  );
}

function weighted<T>(...some: readonly (readonly [number, Arbitrary<T>])[]): Arbitrary<T> {
  return fc.oneof(...some.map(([weight, arbitrary]) => ({ weight, arbitrary })));
}

const empty = Buffer.alloc(0);
const text = (value: string) => Buffer.from(value, "utf8");
const json = (value: unknown) => text(JSON.stringify(value) ?? "");
const someBytes = (maxLength: number) => fc.uint8Array({ maxLength }).map(Buffer.from);

/** Bytes, changed here and there. */
function mutated(original: Arbitrary<Buffer>): Arbitrary<Buffer> {
  const change = fc.record({
    what: fc.constantFrom("set", "flip", "insert", "remove", "cut", "size"),
    at: fc.oneof(fc.nat(64), fc.nat(1_000_000)),
    value: fc.nat(300),
  });
  return fc
    .tuple(original, fc.array(change, { maxLength: 4 }))
    .map(([bytes, changes]) => changes.reduce(applied, bytes));
}

/** Values of a field that has a length. */
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
      copy[position]! ^= 1 << (value % 8);
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
      if (position + 4 <= copy.length) copy.writeUInt32BE(sizes[value % 4]!, position);
      return copy;
    default:
      return copy.subarray(0, position);
  }
}

/** JSON as it is, with one value or member replaced, with bytes changed, or something else. */
function mutatedJson(value: Arbitrary<unknown>): Arbitrary<Buffer> {
  const odd = fc.oneof(fc.constantFrom(0, -1, 33, 2 ** 53, 1e300, 0.5, "", null), fc.jsonValue());
  const replaced = fc.tuple(value, fc.nat(), odd).map(([whole, at, other]) => {
    let values = 0;
    JSON.stringify(whole, (_key, part) => {
      values += 1;
      return part;
    });
    let index = 0;
    return text(
      JSON.stringify(whole, (_key, part) => (index++ === at % values ? other : part)) ?? "",
    );
  });
  const other = fc.constantFrom(
    "[".repeat(5_000),
    '{"images":'.repeat(500),
    '{"images":["',
    "",
    " ",
  );
  return weighted(
    [5, value.map(json)],
    [6, replaced],
    [4, mutated(value.map(json))],
    [1, fc.jsonValue().map(json)],
    [1, other.map(text)],
  );
}

function mutatedImages(images: readonly SampleImage[]): Arbitrary<Buffer> {
  const some = fc.constantFrom(...images.map(({ bytes }) => Buffer.from(bytes)));
  const spliced = fc
    .tuple(some, some, fc.double({ min: 0, max: 1, noNaN: true }))
    .map(([a, b, share]) =>
      Buffer.concat([
        a.subarray(0, Math.floor(a.length * share)),
        b.subarray(Math.floor(b.length * share)),
      ]),
    );
  const heads = ["", "\xff\xd8\xff", "\x89PNG\r\n\x1a\n", "RIFF\0\0\0\0WEBP", "GIF89a", "<svg/>"];
  return weighted(
    [2, some],
    [6, mutated(some)],
    [1, mutated(spliced)],
    [1, someBytes(300)],
    [1, fc.constantFrom(...heads).map((head) => Buffer.from(head, "latin1"))],
  );
}

const modelNames = [...models.map(({ name }) => name), "none", "..", "%00", "a".repeat(300)];
const modelPaths = modelNames.flatMap((model) =>
  ["", "/ready", "/config", "/stats", "/infer", "/versions/1/infer", "/versions/x"].map(
    (rest) => `/v2/models/${model}${rest}`,
  ),
);
const oddPaths = ["/v2", "/metrics", "//", "/../x", "/%zz", "/?a=b", `/${"a".repeat(4_000)}`];
const anyPath = fc.oneof(
  fc.constantFrom(...Object.values(embedPaths), ...Object.values(oipPaths), ...modelPaths),
  fc.constantFrom(...oddPaths, "/v2/repository/index"),
  fc.webPath().map((path) => `/${path}`),
);
const anyMethod = fc.constantFrom("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE");
const headerNames = [
  ...["accept", "accept-encoding", "content-encoding", "content-type", "expect", "authorization"],
  ...["origin", "range", "x-a", "cookie", headerLengthField],
];
const headerValues = [
  ...["application/octet-stream", "application/json", "multipart/form-data", "image/png", "*/*"],
  ...["gzip", "identity", "br", "Bearer x", "100-continue", "bytes=0-1", "0", "-1", "999999"],
];
const extraHeaders = fc.dictionary(
  fc.constantFrom(...headerNames),
  fc.oneof(
    fc.constantFrom(...headerValues),
    fc.string({ maxLength: 20 }).map((value) => value.replace(/[^\x20-\x7e]/g, "")),
  ),
  { maxKeys: 2 },
);
const timeouts = ["1", "500", "20000", "5000000", "0", "-1", "x", "1e6", "", "99999999999999"];

/** A request with another header, query or method now and then, or none at all. */
function changed(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
  const timed = fc
    .tuple(request, fc.constantFrom(...timeouts))
    .map(([it, timeout]) => ({ ...it, path: `${it.path}?${timeoutParameter}=${timeout}` }));
  const headed = fc
    .tuple(request, extraHeaders)
    .map(([it, headers]) => ({ ...it, headers: { ...it.headers, ...headers } }));
  return weighted(
    [12, request],
    [3, headed],
    [2, timed],
    [1, fc.tuple(request, anyMethod).map(([it, method]) => ({ ...it, method }))],
  );
}

function postOf(target: HttpInput["target"], path: string, contentType: string, body: Buffer) {
  const headers = { "content-type": contentType };
  return { kind: "http", method: "POST", target, path, headers, body } as const;
}

function rawImages(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const type = fc.constantFrom("image/jpeg", "image/png", "image/webp", "image/jpeg; a=b");
  return fc
    .tuple(image, type)
    .map(([body, contentType]) => postOf("embed", embedPaths.embed, contentType, body));
}

function forms(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const head = fc.constantFrom(
    'content-disposition: form-data; name="images"; filename="a.jpg"',
    'Content-Disposition: form-data; name="images"; filename="a.jpg"\r\nContent-Type: image/png',
    'content-disposition: form-data; name="note"',
    "content-disposition",
    "",
    `x: ${"y".repeat(20_000)}`,
  );
  const boundary = fc.constantFrom("b", "----x", "a b", "", "z".repeat(300));
  const parts = fc.array(fc.tuple(head, image), { maxLength: 5 });
  const whole = fc.tuple(parts, boundary).map(([list, mark]) => {
    const body = Buffer.concat([
      ...list.flatMap(([lines, content]) => [
        text(`--${mark}\r\n${lines}\r\n\r\n`),
        content,
        text("\r\n"),
      ]),
      text(`--${mark}--\r\n`),
    ]);
    return postOf("embed", embedPaths.embed, `multipart/form-data; boundary="${mark}"`, body);
  });
  return weighted<HttpInput>([2, whole], [1, withMutatedBody(whole)]);
}

function withMutatedBody(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
  return request.chain((it) =>
    mutated(fc.constant(Buffer.from(it.body))).map((body) => ({ ...it, body })),
  );
}

function base64Bodies(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const one = fc.oneof(
    image.map((bytes) => bytes.toString("base64")),
    image.map((bytes) => bytes.toString("base64url")),
  );
  const images = weighted(
    [8, fc.array(one, { maxLength: 4 })],
    [1, fc.constantFrom(33, 40).map((count) => Array<string>(count).fill("AAAA"))],
  );
  return mutatedJson(fc.record({ images })).map((body) =>
    postOf("embed", embedPaths.embedBase64, "application/json", body),
  );
}

/** Any path, with any method. */
function anyHttp(): Arbitrary<HttpInput> {
  return fc.record({
    kind: fc.constant("http" as const),
    target: fc.constantFrom("embed" as const, "triton-http" as const, "triton-metrics" as const),
    method: anyMethod,
    path: anyPath,
    headers: extraHeaders,
    body: weighted([4, fc.constant(empty)], [1, someBytes(200)]),
  });
}

const inferPath = fc
  .constantFrom(...modelNames.slice(0, 6))
  .map((model) => `/v2/models/${model}/infer`);

function inferJson(): Arbitrary<HttpInput> {
  const parameters = fc.constantFrom<Record<string, unknown>[]>(
    {},
    { timeout: 1 },
    { classification: 2 },
    { shared_memory_region: "r" },
    { binary_data: true, binary_data_size: 4 },
  );
  const request = fc.record({
    id: fc.string({ maxLength: 5 }),
    parameters,
    inputs: fc.array(
      fc.record({
        name: fc.constantFrom("image", "encoded", ""),
        datatype: fc.constantFrom("FP32", "UINT8", "BYTES", "INT64", ""),
        shape: fc.constantFrom([1, 3, 224, 224], [1, 1], [2, 1], [1], []),
        parameters,
        data: fc.array(fc.oneof(fc.integer(), fc.string({ maxLength: 5 })), { maxLength: 6 }),
      }),
      { maxLength: 3 },
    ),
    outputs: fc.array(fc.record({ name: fc.constant("embedding"), parameters }), { maxLength: 2 }),
  });
  return fc
    .tuple(inferPath, mutatedJson(request))
    .map(([path, body]) => postOf("triton-http", path, "application/json", body));
}

interface Encoding {
  readonly encoding: string;
  pack(body: Uint8Array): Uint8Array;
}

/** Some of them compressed, or said to be, one of them a bomb. */
function compressed(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
  const encode = fc.constantFrom<Encoding>(
    { encoding: "gzip", pack: gzipSync },
    { encoding: "deflate", pack: deflateSync },
    { encoding: "gzip", pack: (body) => body },
    { encoding: "gzip", pack: () => gzipSync(Buffer.alloc(2_000_000, " ")) },
  );
  const packed = fc.tuple(request, encode).map(([it, { encoding, pack }]) => ({
    ...it,
    headers: { ...it.headers, "content-encoding": encoding },
    body: pack(it.body),
  }));
  return weighted<HttpInput>([8, request], [2, packed]);
}

/** A header in JSON, then the tensors: right ones, with wrong sizes and lengths among them. */
function inferBinary(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const tensorOf = (model: string, datatype: string, shape: number[], data: Uint8Array) => {
    return { model, datatype, shape, data };
  };
  const fill = fc.nat(255);
  const tensor = weighted(
    [6, image.map((it) => tensorOf("openclip_vit_b32_jpeg", "BYTES", [1, 1], joinElements([it])))],
    [
      2,
      fill.map((value) =>
        tensorOf("openclip_vit_b32_u8", "UINT8", [1, 224, 224, 3], Buffer.alloc(pixelBytes, value)),
      ),
    ],
    [
      1,
      // every value of it, NaN among them
      fill.map((value) =>
        tensorOf("openclip_vit_b32", "FP32", [1, 3, 224, 224], Buffer.alloc(4 * pixelBytes, value)),
      ),
    ],
  );
  const lie = weighted([4, fc.constant(0)], [1, fc.integer({ min: -20, max: 20 })]);
  const whole = fc
    .record({ tensor, sizeLie: lie, headLie: lie, shapeLie: lie, binary: fc.boolean() })
    .map(({ tensor: { model, datatype, shape, data }, sizeLie, headLie, shapeLie, binary }) => {
      const head = json({
        inputs: [
          {
            name: "image",
            datatype,
            shape: [shape[0]! + shapeLie, ...shape.slice(1)],
            parameters: { binary_data_size: data.length + sizeLie },
          },
        ],
        outputs: [{ name: "embedding", parameters: { binary_data: binary } }],
      });
      const body = Buffer.concat([head, data]);
      const request = postOf("triton-http", `/v2/models/${model}/infer`, "", body);
      return { ...request, headers: { [headerLengthField]: String(head.length + headLie) } };
    });
  return weighted<HttpInput>([5, whole], [1, withMutatedBody(whole)]);
}

/** Loading and unloading, with configurations that fit and that do not. */
function control(): Arbitrary<HttpInput> {
  const config = fc.oneof(
    mutatedJson(fc.constant({ max_batch_size: 32 })).map(String),
    fc.string({ maxLength: 40 }),
  );
  const body = fc.oneof(
    fc.constant(empty),
    mutatedJson(config.map((value) => ({ parameters: { config: value } }))),
  );
  const path = fc.oneof(
    fc.constant("/v2/repository/index"),
    fc
      .tuple(fc.constantFrom(...modelNames), fc.constantFrom("load", "unload"))
      .map(([model, what]) => `/v2/repository/models/${model}/${what}`),
  );
  return fc.tuple(path, body).map(([url, sent]) => postOf("triton-http", url, "", sent));
}

function grpcCalls(image: Arbitrary<Buffer>): Arbitrary<GrpcInput> {
  const inferMethod = methodOf("ModelInfer");
  const infer = fc
    .record({
      image,
      model: weighted(
        [3, fc.constant("openclip_vit_b32_jpeg")],
        [2, fc.constantFrom(...modelNames)],
      ),
      datatype: weighted([3, fc.constant("BYTES")], [1, fc.constantFrom("FP32", "INT64", "")]),
      shape: weighted<readonly number[]>(
        [3, fc.constant([1, 1])],
        [2, fc.constantFrom([2, 1], [0], [-1], [1, 3])],
      ),
      name: weighted([3, fc.constant("image")], [1, fc.constantFrom("x", "")]),
      raw: fc.boolean(),
    })
    .map(({ model, image, datatype, shape, raw, name }): ModelInferRequest => {
      const contents = raw ? {} : { contents: { bytes_contents: [image] } };
      return {
        model_name: model,
        inputs: [{ name, datatype, shape, ...contents }],
        raw_input_contents: raw ? [Buffer.from(joinElements([image]))] : [],
      };
    })
    .map((request) => inferMethod.requestSerialize(request));
  const callOf = (path: Arbitrary<string>, message: Arbitrary<Buffer>) =>
    fc.record({
      kind: fc.constant("grpc" as const),
      target: fc.constant("triton-grpc" as const),
      path,
      message,
      deadlineMs: weighted<number | undefined>(
        [5, fc.constant(undefined)],
        [1, fc.constantFrom(1, 10)],
      ),
    });
  const paths = [
    // those of a stream would have to be sent as one
    ...Object.values(inferenceService)
      .filter((method) => !method.requestStream)
      .map(({ path }) => path),
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/None",
    "/a/b",
  ];
  // field 1 is the name of a model in most messages
  const named = fc
    .constantFrom(...modelNames)
    .map((name) => Buffer.concat([Buffer.from([0x0a, name.length & 0x7f]), text(name)]));
  return weighted(
    [3, callOf(fc.constant(inferMethod.path), fc.oneof(infer, mutated(infer)))],
    [2, callOf(fc.constantFrom(...paths), fc.oneof(someBytes(60), mutated(infer), named))],
  );
}

/** What no HTTP client sends. */
function sockets(image: Arbitrary<Buffer>): Arbitrary<SocketInput> {
  const line = fc.oneof(
    fc.constantFrom(
      ...["GET / HTTP/1.1", "POST /embed HTTP/1.1", "POST /embed/base64 HTTP/1.1", "GET /"],
      ...["POST /v2/models/openclip_vit_b32/infer HTTP/1.1", "GET /healthz HTTP/1.0"],
      ...["GET / HTTP/9.9", "BREW / HTTP/1.1", "CONNECT a:1 HTTP/1.1", "OPTIONS * HTTP/1.1"],
      ...["GET http://other/ HTTP/1.1", "PRI * HTTP/2.0"],
    ),
    fc.string({ maxLength: 60 }),
  );
  const header = fc.oneof(
    fc.constantFrom(
      ...["host: x", "content-type: image/jpeg", "content-type: application/json", ": x", "a b: c"],
      ...["content-length: 10", "content-length: -1", "content-length: 99999999999999999999"],
      ...["content-length: 10\r\ncontent-length: 11", "transfer-encoding: chunked"],
      ...["transfer-encoding: chunked\r\ncontent-length: 3", "transfer-encoding: gzip"],
      ...["connection: close", "connection: upgrade\r\nupgrade: h2c", "expect: 100-continue"],
      `x: ${"y".repeat(20_000)}`,
    ),
    fc.string({ maxLength: 60 }),
  );
  const chunked = fc.constantFrom(
    ...["5\r\nhello\r\n0\r\n\r\n", "5\r\nhel", "zz\r\n", "ffffffffff\r\nx", "0\r\n\r\n"],
    "5;a=b\r\nhello\r\n0\r\nt: x\r\n\r\n",
  );
  const body = fc.oneof(fc.constant(empty), chunked.map(text), image, someBytes(100));
  const request = fc
    .tuple(line, fc.array(header, { maxLength: 5 }), body)
    .map(([first, headers, content]) =>
      Buffer.concat([text(`${[first, ...headers].join("\r\n")}\r\n\r\n`), content]),
    );
  const http2 = someBytes(100).map((bytes) =>
    Buffer.concat([text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytes]),
  );
  const piece = weighted([6, request], [2, mutated(request)], [1, http2], [1, someBytes(200)]);
  return fc.record({
    kind: fc.constant("socket" as const),
    target: fc.constantFrom(...fuzzTargets),
    pieces: fc.array(piece, { minLength: 1, maxLength: 3 }),
    ending: fc.constantFrom("end" as const, "cut" as const, "wait" as const),
  });
}
