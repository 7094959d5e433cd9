import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { ensureTinyModel } from "./generate.ts";
import { modelInfo, sha256Of, sidecarPath } from "./model-info.ts";
import { onnxChunks } from "./onnx-writer.ts";
import { openProxyDispatcher } from "./proxy-dispatcher.ts";
import { FolderError, sizeOf } from "./publish-file.ts";
import { isPulled, type PinnedModel, type PullOptions, pullModel, pullPartPath } from "./pull.ts";
import { exportedTower } from "./test-exported-tower.ts";
import { type Answer, file, startFileServer, status, type TestServer } from "./test-file-server.ts";

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
const dispatcher = openProxyDispatcher({});

/** Model as published by a hub: batch size 1 and normalised embeddings. */
const published = Buffer.concat(
  [...onnxChunks(exportedTower({ batch: 1, unitLength: true }))].map((piece) => Buffer.from(piece)),
);
/** Model with this project's standard graph. */
let standard: Buffer;

const wanted: PinnedModel = {
  weights: "laion2b_s34b_b79k",
  repository: "owner/name",
  revision: "0".repeat(40),
  path: "visual/model.onnx",
  bytes: published.length,
  sha256: sha256(published),
};

let folder: string;
let model: string;
let servers: TestServer[];
beforeAll(async () => {
  standard = await readFile(await ensureTinyModel());
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-pull-"));
  model = join(folder, "1", "model.onnx");
  servers = [];
});
afterEach(async () => {
  await Promise.all(servers.map((server) => server.close()));
  await rm(folder, { recursive: true, force: true });
});
afterAll(() => dispatcher.close());

async function serve(...answers: readonly Answer[]): Promise<TestServer> {
  const server = await startFileServer(...answers);
  servers.push(server);
  return server;
}

function pull(server: TestServer, options: Partial<PullOptions> = {}) {
  return pullModel({
    model: wanted,
    url: new URL("model.onnx?signature=secret", server.url),
    file: model,
    variant: "published",
    dispatcher,
    wait: async () => {},
    ...options,
  });
}

/** Content of an older model file. */
async function putOldModel(): Promise<void> {
  await mkdir(dirname(model), { recursive: true });
  await writeFile(model, "old weights");
}

test("converts the download to the standard graph and writes its manifest", async () => {
  const { info, agreement, ...came } = await pull(await serve(file(published)), {
    variant: "standard",
  });
  expect(came).toEqual({ sha256: wanted.sha256, bytes: published.length, resumed: 0 });
  expect(info).toMatchObject({
    source: "pulled",
    weights: "laion2b_s34b_b79k",
    origin: `owner/name@${"0".repeat(40)} visual/model.onnx`,
    derivedFrom: wanted.sha256,
    parts: ["dynamic batch", "not normalised"],
  });
  expect(agreement?.minCosine).toBeGreaterThan(0.999_999);
  expect(await modelInfo(model)).toEqual(info);
  expect(await sha256Of(model)).toBe(info.sha256);
  expect(await isPulled(model, wanted, "standard")).toBe(true);
  expect(await isPulled(model, wanted, "published")).toBe(false);
  // no files of the pull remain
  expect((await readdir(dirname(model))).sort()).toEqual(["model.onnx", "model.onnx.json"]);
});

test("keeps a download with the standard signature unchanged", async () => {
  const own = { ...wanted, bytes: standard.length, sha256: sha256(standard) };
  const { info, agreement } = await pull(await serve(file(standard)), {
    model: own,
    variant: "standard",
  });
  expect(agreement).toBeUndefined();
  expect(info).toMatchObject({ source: "pulled", sha256: own.sha256 });
  expect((await readFile(model)).equals(standard)).toBe(true);
  expect(await modelInfo(model)).toEqual(info);
});

test("keeps the published bytes on request", async () => {
  const { info } = await pull(await serve(file(published)));
  expect(info.sha256).toBe(wanted.sha256);
  expect((await readFile(model)).equals(published)).toBe(true);
  expect(await isPulled(model, wanted, "published")).toBe(true);
});

test("rejects another checksum, and keeps the old file", async () => {
  await putOldModel();
  const other = Buffer.from(published);
  other[other.length - 1]! ^= 1;
  await expect(pull(await serve(file(other)))).rejects.toThrow(
    `model.onnx: sha256 must be ${wanted.sha256}, got ${sha256(other)} (${other.length} bytes)`,
  );
  expect(await readFile(model, "utf8")).toBe("old weights");
  expect(await readdir(dirname(model))).toEqual(["model.onnx"]);
});

test("restarts the download if an earlier pull was of another file", async () => {
  await mkdir(dirname(model));
  await writeFile(pullPartPath(model), Buffer.alloc(1000, "x"));
  const server = await serve(file(published));
  const lines: string[] = [];
  await pull(server, { onRetry: (line) => lines.push(line) });
  expect(lines).toEqual(["the earlier download is of another file; restarting"]);
  expect(server.requests.map(({ headers }) => headers.range)).toEqual(["bytes=1000-", undefined]);
});

test("resumes an interrupted pull and keeps the old file until it completes", async () => {
  await putOldModel();
  const arrived = async () => ((await sizeOf(pullPartPath(model))) ?? 0) >= 5000;
  const cut = await serve(file(published, { cut: { bytes: 5000, arrived } }), status(404));
  await expect(pull(cut)).rejects.toThrow("responded with 404");
  expect(await readFile(model, "utf8")).toBe("old weights");
  const { resumed } = await pull(await serve(file(published)));
  expect(resumed).toBe(5000);
  expect((await modelInfo(model)).source).toBe("pulled");
});

test("trusts the download if no checksum is known", async () => {
  const unknown = { ...wanted, sha256: undefined, bytes: undefined };
  const { sha256: came, bytes } = await pull(await serve(file(published)), { model: unknown });
  expect([came, bytes]).toEqual([wanted.sha256, published.length]);
});

test("fails if the download is not an image tower, and keeps the download", async () => {
  const text = Buffer.from("no model at all, and as long as it likes to be");
  const own = { ...wanted, bytes: text.length, sha256: sha256(text) };
  await expect(pull(await serve(file(text)), { model: own })).rejects.toThrow(
    /model\.pull\.onnx\.part: is not a complete ONNX file$/,
  );
  expect(existsSync(pullPartPath(model))).toBe(true);
  expect(existsSync(model)).toBe(false);
});

test("only one process at a time can pull a file", async () => {
  let release = () => {};
  const held: Answer = (request, response) => {
    release = () => file(published)(request, response);
  };
  const server = await serve(held, file(published));
  const first = pull(server);
  while (server.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 2));
  await expect(pull(server)).rejects.toThrow(
    `${model} is already being downloaded by process ${process.pid}: wait for it or stop it`,
  );
  release();
  await first;
  // the lock is released afterwards
  await rm(model);
  await pull(server);
});

test("completes a pull that was interrupted after the download", async () => {
  await mkdir(dirname(model));
  await writeFile(pullPartPath(model), published);
  const server = await serve(status(500));
  expect((await pull(server)).resumed).toBe(published.length);
  expect(server.requests).toHaveLength(0);
});

test("takes over the lock of a killed process", async () => {
  await mkdir(dirname(model));
  const lock = join(dirname(model), "model.pull-lock.onnx.part");
  // process id that cannot exist
  await writeFile(lock, `${hostname()} 4194999 1\n`);
  await pull(await serve(file(published)));
  expect(existsSync(lock)).toBe(false);
  // lock of an earlier container with the same host name and process id
  await writeFile(lock, `${hostname()} ${process.pid} 1\n`);
  await pull(await serve(file(published)));
  expect(existsSync(lock)).toBe(false);
  await writeFile(lock, "elsewhere 1 1\n");
  await rm(sidecarPath(model));
  await expect(pull(await serve(file(published)))).rejects.toThrow("by process 1 of elsewhere");
});

test("fails before the download if the folder cannot be created", async () => {
  await writeFile(join(folder, "plain"), "");
  const server = await serve(file(published));
  const error = await pull(server, { file: join(folder, "plain", "model.onnx") }).catch(
    (cause: unknown) => cause,
  );
  expect(error).toBeInstanceOf(FolderError);
  expect((error as Error).message).toMatch(/plain: cannot be written: E[A-Z]+$/);
  expect(server.requests).toHaveLength(0);
});

test("fails before the download if the disk space is insufficient", async () => {
  const server = await serve(file(published));
  const huge = { ...wanted, bytes: 2 ** 52 };
  await expect(pull(server, { model: huge })).rejects.toThrow(
    /1: must have 4503599628 MB of free space, got \d+ MB$/,
  );
  expect(server.requests).toHaveLength(0);
});
