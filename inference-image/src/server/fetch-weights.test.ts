import { createReadStream } from "node:fs";
import { copyFile, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { sha256Of } from "../model/model-info.ts";
import { tinyModel } from "../model/test-model.ts";
import { fetchWeights, readFetchWeightsArguments } from "./fetch-weights.ts";

let folder: string;
let server: Server;
let origin: string;
/** Paths that were asked for. */
let asked: string[];

const answers: Record<string, RequestListener> = {
  "/model.onnx": async (_request, response) => {
    createReadStream(await tinyModel()).pipe(response);
  },
  "/moved": (_request, response) => {
    response.writeHead(302, { location: "/model.onnx" }).end();
  },
  "/cut": async (_request, response) => {
    response.writeHead(200, { "content-length": "1000000" });
    response.write("half");
    setTimeout(() => response.destroy(), 20);
  },
};

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-fetch-"));
  asked = [];
  server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "/", "http://127.0.0.1");
    asked.push(pathname);
    const answer = answers[pathname];
    if (answer === undefined) response.writeHead(404).end("no such file");
    else answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true, force: true });
});

const sha256 = async () => await sha256Of(await tinyModel());
const options = async (path: string) =>
  ({
    url: `${origin}${path}`,
    folder,
    sha256: await sha256(),
    executionProvider: "none",
  }) as const;

test("fetches the file and checks it", async () => {
  expect(await fetchWeights(await options("/model.onnx"))).toMatch(
    /^fetched in \d+\.\d s; \/.*\/model\.onnx is sha256 [0-9a-f]{12}, \d+ MB, weights unknown$/,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
  expect(await sha256Of(join(folder, "model.onnx"))).toBe(await sha256());
});

test("makes the folder ready for the embed server", async () => {
  const line = await fetchWeights({
    ...(await options("/model.onnx")),
    executionProvider: "cpu",
  });
  expect(line).toContain("the form that the embed server runs lies beside it");
  expect(await readdir(folder)).toEqual(["model.onnx", "model.onnx.json", "prepared"]);
});

test("makes the folder where there is none", async () => {
  await fetchWeights({ ...(await options("/model.onnx")), folder: join(folder, "a", "b") });
  expect(await readdir(join(folder, "a", "b"))).toEqual(["model.onnx"]);
});

test("follows a redirect", async () => {
  await fetchWeights(await options("/moved"));
  expect(asked).toEqual(["/moved", "/model.onnx"]);
});

test("fetches nothing that is there already", async () => {
  const file = join(folder, "model.onnx");
  await copyFile(await tinyModel(), file);
  const before = await stat(file);
  expect(await fetchWeights(await options("/model.onnx"))).toMatch(/^it was there already; /);
  expect(asked).toEqual([]);
  expect((await stat(file)).ino).toBe(before.ino);
});

test("replaces other weights that are there", async () => {
  await writeFile(join(folder, "model.onnx"), "older weights");
  await fetchWeights(await options("/model.onnx"));
  expect(await sha256Of(join(folder, "model.onnx"))).toBe(await sha256());
});

test("fails on another file than was meant, and leaves nothing", async () => {
  const other = "0".repeat(64);
  const { size } = await stat(await tinyModel());
  await expect(
    fetchWeights({ ...(await options("/model.onnx?signature=secret")), sha256: other }),
  ).rejects.toThrow(
    `${origin}/model.onnx: sha256 must be ${other}, got ${await sha256()} (${size} bytes)`,
  );
  expect(await readdir(folder)).toEqual([]);
});

test("keeps the weights that are there when the new ones do not come", async () => {
  await writeFile(join(folder, "model.onnx"), "older weights");
  await expect(fetchWeights(await options("/cut"))).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:\d+\/cut: cannot be fetched: /,
  );
  expect(await readdir(folder)).toEqual(["model.onnx"]);
});

test("fails where there is no such file, without what the address has as a secret", async () => {
  await expect(fetchWeights(await options("/absent?signature=secret"))).rejects.toThrow(
    new RegExp(`^${origin}/absent: answered 404 Not Found$`),
  );
});

test("fails where nobody listens", async () => {
  await new Promise((resolve) => server.close(resolve));
  await expect(fetchWeights(await options("/model.onnx"))).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:\d+\/model\.onnx: cannot be fetched: connect ECONNREFUSED 127\.0\.0\.1:\d+$/,
  );
});

test("fails where the folder cannot be made", async () => {
  await writeFile(join(folder, "file"), "");
  await expect(
    fetchWeights({ ...(await options("/model.onnx")), folder: join(folder, "file", "weights") }),
  ).rejects.toThrow(/ENOTDIR/);
});

test.each<[string, readonly string[], string]>([
  [
    "no address",
    ["--folder=/weights", `--sha256=${"0".repeat(64)}`],
    "fetch-weights: --url must be given; usage: fetch-weights --url … --folder … --sha256 … [--execution-provider …]",
  ],
  [
    "an address that is not HTTP",
    ["--url=ftp://example.org/m", "--folder=/weights", `--sha256=${"0".repeat(64)}`],
    "fetch-weights: --url must be http://… or https://…, got 'ftp://example.org/m'",
  ],
  [
    "a short checksum",
    ["--url=http://example.org/m", "--folder=/weights", "--sha256=abc"],
    "fetch-weights: --sha256 must be 64 digits, lower-case hexadecimal, got 'abc'",
  ],
])("refuses %s", (_name, args, message) => {
  expect(() => readFetchWeightsArguments(args)).toThrow(message);
});
