import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { deflateSync, gzipSync } from "node:zlib";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { channelOptions, type ModelInferRequest, methodOf } from "../client/triton/wire-grpc.ts";
import { headerLengthField } from "../client/triton/wire-http.ts";
import { fullTestRepository, type TestRepository } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const jpeg = "openclip_vit_b32_jpeg";
const image = readFileSync(new URL("../model-tools/samples/sunset.jpg", import.meta.url));
const maxInputBytes = 2 * 1024 * 1024;

let repository: TestRepository;
let server: RunningTritonEmulator;
let client: Client;
const log: string[] = [];
beforeAll(async () => {
  repository = await fullTestRepository();
  server = await startTritonEmulator(
    repository.flags({
      "http-max-input-size": maxInputBytes,
      "model-control-mode": "explicit",
      "load-model": [jpeg],
    }),
    { log: (line) => log.push(line) },
  );
  client = new Client(`127.0.0.1:${server.ports.grpc}`, credentials.createInsecure(), {
    ...channelOptions,
  });
});
afterAll(async () => {
  client?.close();
  await server?.stop();
  await repository?.remove();
});

interface Answer {
  readonly status: number;
  readonly error: string;
}

async function post(body: Buffer | string, headers = {}, path = `models/${jpeg}/infer`) {
  const url = `http://127.0.0.1:${server.ports.http}/v2/${path}`;
  const answer = await request(url, { method: "POST", body, headers });
  const { error = "" } = (await answer.body.json().catch(() => ({}))) as { error?: string };
  return { status: answer.statusCode, error } satisfies Answer;
}

/** Returns a request with one input in binary form. */
function binary(head: Readonly<Record<string, unknown>>, bytes: Uint8Array, lie = 0) {
  const input = {
    name: "image",
    datatype: "BYTES",
    shape: [1, 1],
    parameters: { binary_data_size: bytes.byteLength },
    ...head,
  };
  const json = Buffer.from(JSON.stringify({ inputs: [input] }));
  return post(Buffer.concat([json, bytes]), { [headerLengthField]: String(json.byteLength + lie) });
}

const element = (bytes: Uint8Array, length = bytes.byteLength) => {
  const prefix = Buffer.alloc(4);
  prefix.writeUInt32LE(length);
  return Buffer.concat([prefix, bytes]);
};

describe("over HTTP, each invalid request gets a specific client error", () => {
  test.each<[string, () => Promise<Answer>, string | RegExp]>([
    [
      "an element that claims more bytes than there are",
      () => binary({}, element(image, image.byteLength + 1)),
      `incomplete string data for 'image', expecting string of length ${image.byteLength + 1} but only ${image.byteLength} bytes available`,
    ],
    [
      "an empty image",
      () => binary({}, element(Buffer.alloc(0))),
      `in ensemble '${jpeg}', image 0 is not a JPEG, PNG or WebP file`,
    ],
    [
      "a truncated image, the second of three",
      () =>
        binary(
          { shape: [3, 1] },
          Buffer.concat([image, image.subarray(0, 3000), image].map((file) => element(file))),
        ),
      /^in ensemble 'openclip_vit_b32_jpeg', image 1 cannot be decoded: /,
    ],
    [
      "an image in JSON, where there is no text for it",
      () =>
        post(
          Buffer.concat([
            Buffer.from('{"inputs":[{"name":"image","datatype":"BYTES","shape":[1,1],"data":["'),
            Buffer.from([0xff, 0xd8, 0xff]),
            Buffer.from('"]}]}'),
          ]),
        ),
      "failed to parse JSON: it is not UTF-8",
    ],
    [
      "a shape that overflows",
      () => binary({ shape: [2 ** 52, 2 ** 52] }, element(image)),
      `inference request batch-size must be <= 32 for '${jpeg}'`,
    ],
    [
      "a shape beyond safe integers",
      () => binary({ shape: [1, 1e300] }, element(image)),
      /^Unable to parse 'inputs\[0\]\.shape\[1\]': /,
    ],
    [
      "a batch of none",
      () => binary({ shape: [0, 1] }, Buffer.alloc(0)),
      `inference request batch-size must be >= 1 for '${jpeg}', got 0`,
    ],
    [
      "a header length that is too short",
      () => binary({}, element(image), -1),
      /^failed to parse JSON: /,
    ],
    [
      "a raw binary request that is no image",
      () => post(Buffer.from("no image"), { [headerLengthField]: "0" }),
      /image 0 /,
    ],
    [
      "a header length that is too long",
      () => binary({}, element(image), 1),
      /^failed to parse JSON: /,
    ],
    [
      "no head length for what is not JSON",
      () => post(element(image)),
      "failed to parse JSON: it is not UTF-8",
    ],
    [
      "a body that is announced too large",
      () => post(Buffer.alloc(maxInputBytes + 1)),
      `request body exceeds the maximum allowed input size of ${maxInputBytes} bytes. Use --http-max-input-size to increase the limit.`,
    ],
    [
      "a small body that decompresses to a large one",
      () => post(gzipSync(Buffer.alloc(50 * maxInputBytes)), { "content-encoding": "gzip" }),
      /^decompressed request exceeds the maximum allowed input size of 2097152 bytes/,
    ],
    [
      "half a compressed body",
      () => post(deflateSync(image).subarray(0, 100), { "content-encoding": "deflate" }),
      "failed to decompress the request: unexpected end of file",
    ],
    [
      "a compression that is not offered",
      () => post(image, { "content-encoding": "br" }),
      "Unsupported compression type",
    ],
    [
      "an order that is not one",
      () => post('{"parameters":{"config":7}}', {}, `repository/models/${jpeg}/load`),
      /^Invalid value for 'parameters\.config': /,
    ],
    [
      "an order as large as a model",
      () => post(Buffer.alloc(5 * 1024 * 1024), {}, `repository/models/${jpeg}/load`),
      /^request body exceeds the maximum allowed input size of 4194304 bytes/,
    ],
  ])("%s", async (_, ask, message) => {
    const { status: code, error } = await ask();
    if (typeof message === "string") expect(error).toBe(message);
    else expect(error).toMatch(message);
    expect(code).toBe(400);
  });

  test("a model that is missing is reported before the body is read", async () => {
    const socket = connect(server.ports.http, "127.0.0.1");
    socket.write(
      "POST /v2/models/nope/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 999999\r\n\r\n",
    );
    const answer = await new Promise((resolve) =>
      socket.once("data", (data) => resolve(String(data))),
    );
    expect(answer).toMatch(/^HTTP\/1\.1 404 /);
    socket.destroy();
  });

  test("data that is not HTTP gets an error of this protocol", async () => {
    const socket = connect(server.ports.http, "127.0.0.1");
    socket.write("HELLO\r\n\r\n");
    const answer = await new Promise<string>((resolve) =>
      socket.once("data", (data) => resolve(String(data))),
    );
    expect(answer).toMatch(/^HTTP\/1\.1 400 /);
    expect(answer).toMatch(/\{"error":"invalid HTTP: /);
    socket.destroy();
  });

  test("NaN results are rejected in JSON and returned unchanged as bytes", async () => {
    await request(
      `http://127.0.0.1:${server.ports.http}/v2/repository/models/openclip_vit_b32/load`,
      {
        method: "POST",
      },
    );
    const pixels = Buffer.from(new Float32Array(3 * 224 * 224).fill(Number.NaN).buffer);
    const ask = (binary_data: boolean) => {
      const json = Buffer.from(
        JSON.stringify({
          inputs: [
            {
              name: "image",
              datatype: "FP32",
              shape: [1, 3, 224, 224],
              parameters: { binary_data_size: pixels.byteLength },
            },
          ],
          outputs: [{ name: "embedding", parameters: { binary_data } }],
        }),
      );
      const headers = { [headerLengthField]: String(json.byteLength) };
      return post(Buffer.concat([json, pixels]), headers, "models/openclip_vit_b32/infer");
    };
    expect(await ask(false)).toEqual({
      status: 400,
      error:
        "failed to write output 'embedding' has a value that is not finite, which JSON cannot represent: use the binary data format",
    });
    expect((await ask(true)).status).toBe(200);
  });
});

describe("over gRPC, too", () => {
  const serialize = (message: ModelInferRequest) =>
    methodOf("ModelInfer").requestSerialize(message);
  const call = (message: Buffer) =>
    new Promise<ServiceError>((resolve, reject) => {
      const { path, responseDeserialize } = methodOf("ModelInfer");
      client.makeUnaryRequest(
        path,
        (bytes: Buffer) => bytes,
        responseDeserialize,
        message,
        new Metadata(),
        {},
        (error) => (error === null ? reject(new Error("it was answered")) : resolve(error)),
      );
    });
  const input = { name: "image", datatype: "BYTES", shape: [1, 1] };
  const requestOf = (extra: Partial<ModelInferRequest>) =>
    serialize({ model_name: jpeg, inputs: [input], ...extra });

  test.each<[string, () => Buffer, status, string | RegExp]>([
    [
      "an element that claims more bytes than there are",
      () => requestOf({ raw_input_contents: [element(image, image.byteLength + 1)] }),
      status.INVALID_ARGUMENT,
      /incomplete string data for 'image'/,
    ],
    [
      "a shape that overflows",
      () => requestOf({ inputs: [{ ...input, shape: [1, 2 ** 52] }], raw_input_contents: [image] }),
      status.INVALID_ARGUMENT,
      /unexpected shape for input 'image'/,
    ],
    [
      "a negative shape",
      () => requestOf({ inputs: [{ ...input, shape: [1, -1] }], raw_input_contents: [image] }),
      status.INVALID_ARGUMENT,
      /unexpected shape for input 'image'/,
    ],
    [
      "bytes that are no message",
      () => Buffer.from([0x0f]),
      status.INVALID_ARGUMENT,
      /^failed to parse the request: /,
    ],
    [
      "a message with a truncated tensor",
      () => Buffer.concat([requestOf({ inputs: [] }), Buffer.from([0x2a, 0x02, 0x0a, 0x7f])]),
      status.INVALID_ARGUMENT,
      /^failed to parse the request: /,
    ],
    [
      "nothing",
      () => Buffer.alloc(0),
      status.NOT_FOUND,
      "Request for unknown model: '' is not found",
    ],
    [
      "a message that is too large",
      () => requestOf({ raw_input_contents: [Buffer.alloc(maxInputBytes)] }),
      status.RESOURCE_EXHAUSTED,
      /larger than max/,
    ],
    [
      "a timeout that is no number",
      () =>
        requestOf({
          parameters: { timeout: { string_param: "soon" } },
          raw_input_contents: [element(image)],
        }),
      status.INVALID_ARGUMENT,
      "Unable to parse 'timeout': must be a whole number of at least 0, got soon",
    ],
  ])("%s", async (_, message, code, details) => {
    const error = await call(message());
    if (typeof details === "string") expect(error.details).toBe(details);
    else expect(error.details).toMatch(details);
    expect(error.code).toBe(code);
  });
});

test("after all of that the server still answers and has logged no internal error", async () => {
  const json = Buffer.from(
    JSON.stringify({
      id: "7",
      inputs: [
        {
          name: "image",
          datatype: "BYTES",
          shape: [1, 1],
          parameters: { binary_data_size: image.byteLength + 4 },
        },
      ],
    }),
  );
  const answer = await post(Buffer.concat([json, element(image)]), {
    [headerLengthField]: String(json.byteLength),
  });
  expect(answer).toEqual({ status: 200, error: "" });
  expect(log.filter((line) => line.includes("internal error"))).toEqual([]);
});
