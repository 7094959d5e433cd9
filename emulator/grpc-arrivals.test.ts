import { type ClientHttp2Session, connect } from "node:http2";
import { gzipSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { methodOf } from "../client/triton/wire-grpc.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const model = "openclip_vit_b32";
const imageBytes = 4 * elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);
const mib = 1024 * 1024;
const ok = "0";
const exhausted = "8";

let repository: TestRepository;
let server: RunningTritonEmulator;
beforeAll(async () => {
  repository = await testRepository({ [`${model}/config.pbtxt`]: tinyConfig() });
  server = await startTritonEmulator(repository.flags(), {
    log: () => {},
    limits: { maxQueueSize: 512, maxQueueBytes: 8 * mib },
  });
}, 30_000);
afterAll(async () => {
  await server?.stop();
  await repository?.remove();
});

const sessions: ClientHttp2Session[] = [];
afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});

/** Call on a connection of its own. */
function call(method: string) {
  const session = connect(`http://127.0.0.1:${server.ports.grpc}`);
  session.on("error", () => {});
  sessions.push(session);
  const stream = session.request({
    ":method": "POST",
    ":path": `/inference.GRPCInferenceService/${method}`,
    "content-type": "application/grpc",
    "grpc-encoding": "gzip",
    te: "trailers",
  });
  const status = new Promise<string>((resolve, reject) => {
    const settle = (headers: object) => {
      const code = (headers as Record<string, string>)["grpc-status"];
      if (code !== undefined) resolve(code);
    };
    stream.on("response", settle).on("trailers", settle).on("error", reject);
    stream.resume();
  });
  return { session, stream, status };
}

function framed(message: Buffer, compressed = 0, length = message.length): Buffer {
  const prefix = Buffer.alloc(5, compressed);
  prefix.writeUInt32BE(length, 1);
  return Buffer.concat([prefix, message]);
}

const message = methodOf("ModelInfer").requestSerialize({
  model_name: model,
  inputs: [{ name: "image", datatype: "FP32", shape: [1, 3, 224, 224] }],
  raw_input_contents: [Buffer.alloc(imageBytes)],
} as never);

/** Starts a message of 2.5 MiB that never ends. */
function unfinished(method: string) {
  const started = call(method);
  started.stream.write(framed(Buffer.alloc(mib), 0, 2.5 * mib));
  return started;
}

async function inferred(bytes: Buffer): Promise<string> {
  const { stream, status } = call("ModelInfer");
  stream.end(bytes);
  return status;
}

/** Waits until the bytes of earlier messages are free. */
async function untilFree(): Promise<void> {
  while ((await inferred(framed(message))) !== ok)
    await new Promise((resolve) => setTimeout(resolve, 20));
}

describe.each(["ModelInfer", "ModelStreamInfer", "RepositoryModelLoad"])("%s", (method) => {
  test("rejects unfinished messages above the limit, and frees them after a disconnect", async () => {
    const calls = Array.from({ length: 4 }, () => unfinished(method));
    const rejected = await Promise.race([
      Promise.any(calls.slice(2).map(({ status }) => status)),
      Promise.any(calls.slice(0, 2).map(({ status }) => status)),
    ]);
    expect(rejected).toBe(exhausted);
    // one client may have three quarters of 8 MiB
    expect(await inferred(framed(message))).toBe(ok);
    const full = framed(Buffer.alloc(mib), 0, 4 * mib);
    const { stream, status } = call("ModelInfer");
    stream.write(full);
    expect(await status).toBe(exhausted);
    for (const { session } of calls) session.destroy();
    await untilFree();
    const all = Array.from({ length: 2 }, () => unfinished(method));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(all.every(({ stream: open }) => !open.closed)).toBe(true);
  });
});

test.each([
  [
    "one byte at a time at its start",
    (bytes: Buffer) =>
      [...bytes.subarray(0, 12)]
        .map((_, at) => bytes.subarray(at, at + 1))
        .concat(bytes.subarray(12)),
  ],
  ["compressed", () => [framed(gzipSync(message), 1)]],
] as const)("accepts a message that arrives %s, and frees its bytes", async (_, piecesOf) => {
  for (let round = 0; round < 16; round++) {
    const { stream, status } = call("ModelInfer");
    for (const piece of piecesOf(framed(message))) {
      stream.write(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    stream.end();
    expect(await status).toBe(ok);
  }
});

test("accepts several messages in one frame of a stream", async () => {
  const { stream, status } = call("ModelStreamInfer");
  stream.end(Buffer.concat([framed(message), framed(message), framed(message)]));
  expect(await status).toBe(ok);
});

test("frees a message for an unknown model", async () => {
  const other = methodOf("ModelInfer").requestSerialize({
    model_name: "other",
    raw_input_contents: [Buffer.alloc(3 * mib)],
  } as never);
  for (let round = 0; round < 4; round++) expect(await inferred(framed(other))).toBe("5");
});
