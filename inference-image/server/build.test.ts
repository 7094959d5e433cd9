import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { embedPaths, embedResponse } from "../../contract/embed-api.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { type ServerProcess, startEmbed, startTriton } from "../../lab/trials/server-process.ts";
import packageJson from "../package.json" with { type: "json" };

const jpegModel = tritonModel(defaultModel, "jpeg");

const packageFolder = fileURLToPath(new URL("../", import.meta.url));

/** Only packages in node_modules of the compiled server. */
const packages = ["onnxruntime-node", "sharp"];

let folder: string;
let main: string;
let server: ServerProcess | undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-build-"));
  main = join(folder, "dist", "main.js");
  await promisify(execFile)(process.execPath, [join(packageFolder, "build.mjs"), dirname(main)]);
  await mkdir(join(folder, "node_modules"));
  for (const name of packages) {
    const [installed] = /^.*\bnode_modules\/[^/]+/.exec(fileURLToPath(import.meta.resolve(name)))!;
    await symlink(installed, join(folder, "node_modules", name));
  }
});
afterEach(async () => {
  await server?.stop();
  server = undefined;
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test("compiles an embed server that answers requests and stops gracefully", async () => {
  server = await startEmbed({}, [main]);

  const [port] = server.ports;
  const response = await fetch(`http://127.0.0.1:${port}${embedPaths.embed}`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(await picture()),
  });
  expect(embedResponse.parse(await response.json()).embeddings).toHaveLength(1);
  expect(await server.stop()).toBe("with code 0");
});

test("compiles the Triton emulator with gRPC and preprocessing", async () => {
  server = await startTriton([main]);
  const [, grpcPort] = server.ports;
  const triton = openGrpcTransport({ target: `127.0.0.1:${grpcPort}` });
  try {
    const { name, inputs } = jpegModel;
    const image = {
      name: inputs[0].name,
      dataType: "BYTES",
      shape: [1, 1],
      data: [await picture()],
    } as const;
    const [embedding] = await triton.infer(name, [image], { timeoutMs: 20_000 });
    expect(embedding?.shape).toEqual([1, defaultModel.embedding.width]);
    const { version } = await triton.serverMetadata({ timeoutMs: 5_000 });
    expect(version).toBe(packageJson.version);
  } finally {
    await triton.close();
  }
  expect(await server.stop()).toBe("with code 0");
});

test("compiles the export of traces", async () => {
  const received: string[] = [];
  const collector = createServer(async (request, response) => {
    received.push(`${request.url} ${await text(request)}`);
    response.end();
  });
  await once(collector.listen(0, "127.0.0.1"), "listening");
  const { port } = collector.address() as AddressInfo;
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}` };
  server = await startEmbed({ env }, [main]);
  const url = `http://127.0.0.1:${server.ports[0]}${embedPaths.embed}`;
  await (await fetch(url, { method: "POST" })).text();
  await server.stop();
  collector.close();
  // protobuf, which contains names as they are
  expect(received.join()).toMatch(/^\/v1\/traces .*POST \/embed/s);

  server = await startEmbed({ env: { ...env, OTEL_EXPORTER_OTLP_PROTOCOL: "grpc" } }, [main]);
  expect(await server.stop()).toBe("with code 0");
});

test("the output contains no tests and no paths of this machine", async () => {
  const files = await readdir(dirname(main), { recursive: true });
  expect(files.filter((file) => /test|trial|fuzz|soak|\.ts$/.test(file))).toEqual([]);
  const code = files.filter((file) => /\.m?js$/.test(file));
  const texts = await Promise.all(code.map((file) => readFile(join(dirname(main), file), "utf8")));
  expect(code.filter((_, index) => texts[index]!.includes(packageFolder))).toEqual([]);
});
