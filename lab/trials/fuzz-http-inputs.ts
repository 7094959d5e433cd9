import { deflateSync, gzipSync } from "node:zlib";
import fc, { type Arbitrary } from "fast-check";
import { headerLengthField } from "../../client/triton/wire-http.ts";
import { embedPaths, timeoutParameter } from "../../contract/embed-api.ts";
import { withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { kindsOf, tritonModelName } from "../../contract/triton-models.ts";
import { fuzzTargets, type HttpInput, type SocketInput } from "./fuzz-input.ts";
import { empty, mutated, mutatedJson, someBytes, text, weighted } from "./fuzz-mutations.ts";

/** Models that the fuzzed emulator serves. */
export const repositoryModels = kindsOf(withModalities(defaultModel, ["image"])).map((modelKind) =>
  tritonModelName(defaultModel, modelKind),
);
export const modelNames = [...repositoryModels, "none", "..", "%00", "a".repeat(300)];
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

/** Requests, some of them with other headers, a timeout or another method. */
export function withChanges(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
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

export function postOf(
  target: HttpInput["target"],
  path: string,
  contentType: string,
  body: Buffer,
) {
  const headers = { "content-type": contentType };
  return { kind: "http", method: "POST", target, path, headers, body } as const;
}

export function rawImages(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const type = fc.constantFrom("image/jpeg", "image/png", "image/webp", "image/jpeg; a=b");
  return fc
    .tuple(image, type)
    .map(([body, contentType]) => postOf("embed", embedPaths.embed, contentType, body));
}

export function multipartForms(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
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
  const form = fc.tuple(parts, boundary).map(([list, mark]) => {
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
  return weighted<HttpInput>([2, form], [1, withMutatedBody(form)]);
}

export function withMutatedBody(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
  return request.chain((it) =>
    mutated(fc.constant(Buffer.from(it.body))).map((body) => ({ ...it, body })),
  );
}

export function base64Bodies(image: Arbitrary<Buffer>): Arbitrary<HttpInput> {
  const encoded = fc.oneof(
    image.map((bytes) => bytes.toString("base64")),
    image.map((bytes) => bytes.toString("base64url")),
  );
  const images = weighted(
    [8, fc.array(encoded, { maxLength: 4 })],
    [1, fc.constantFrom(33, 40).map((count) => Array<string>(count).fill("AAAA"))],
  );
  return mutatedJson(fc.record({ images })).map((body) =>
    postOf("embed", embedPaths.embedBase64, "application/json", body),
  );
}

export function anyHttp(): Arbitrary<HttpInput> {
  return fc.record({
    kind: fc.constant("http" as const),
    target: fc.constantFrom("embed" as const, "triton-http" as const, "triton-metrics" as const),
    method: anyMethod,
    path: anyPath,
    headers: extraHeaders,
    body: weighted([4, fc.constant(empty)], [1, someBytes(200)]),
  });
}

interface Encoding {
  readonly encoding: string;
  pack(body: Uint8Array): Uint8Array;
}

/** Requests, some of them compressed, uncompressed with a compression header, or a decompression bomb. */
export function compressed(request: Arbitrary<HttpInput>): Arbitrary<HttpInput> {
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

/** Bytes that no HTTP client sends. */
export function sockets(image: Arbitrary<Buffer>): Arbitrary<SocketInput> {
  const line = fc.oneof(
    fc.constantFrom(
      ...["GET / HTTP/1.1", "POST /embed HTTP/1.1", "POST /embed/base64 HTTP/1.1", "GET /"],
      ...[`POST /v2/models/${modelNames[0]}/infer HTTP/1.1`, "GET /healthz HTTP/1.0"],
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
