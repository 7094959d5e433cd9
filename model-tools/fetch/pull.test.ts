import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { mobileclip2S0 } from "../../contract/models/mobileclip2-s0.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import type { HubWeights } from "../../contract/models/trained-weights.ts";
import { modelInfo, sha256Of, sidecarPath } from "../files/model-info.ts";
import { FolderError, sizeOf } from "../files/publish-file.ts";
import { ensureTinyModel } from "../generate/generate.ts";
import { structureOf } from "../graph/model-structure.ts";
import { readOnnx } from "../onnx/reader.ts";
import { openProxyDispatcher } from "./proxy-dispatcher.ts";
import { isPulled, type PullOptions, pullModel, pullPartPath } from "./pull.ts";
import { type Answer, file, startFileServer, status, type TestServer } from "./test-file-server.ts";
import { fewWords, safetensorsFile, smallOpenClip } from "./test-safetensors.ts";

const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");
const dispatcher = openProxyDispatcher({});

const published = safetensorsFile(smallOpenClip(fewWords).tensors);

const wanted: HubWeights = {
  name: "laion2b_s34b_b79k",
  host: "huggingface",
  repository: "owner/name",
  revision: "0".repeat(40),
  file: "open_clip_model.safetensors",
  bytes: published.length,
  sha256: sha256(published),
};

let folder: string;
let model: string;
let servers: TestServer[];
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
    spec: fewWords,
    weights: wanted,
    url: new URL("model.safetensors?signature=secret", server.url),
    towers: [{ modality: "image", file: model }],
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

test("writes both towers of the download with their manifests", async () => {
  const text = join(folder, "text", "model.onnx");
  const towers = [
    { modality: "image", file: model },
    { modality: "text", file: text },
  ] as const;
  const { towers: written, ...came } = await pull(await serve(file(published)), { towers });
  expect(came).toEqual({ sha256: wanted.sha256, bytes: published.length, resumed: 0 });
  for (const [index, { modality, file: path }] of towers.entries()) {
    const { info } = written[index]!;
    expect(info).toMatchObject({
      source: "pulled",
      weights: "laion2b_s34b_b79k",
      model: "openclip-vit-b32",
      origin: `owner/name@${"0".repeat(40)} open_clip_model.safetensors`,
      derivedFrom: wanted.sha256,
      parts: [`${modality} tower`],
    });
    expect(await modelInfo(path)).toEqual(info);
    expect(await sha256Of(path)).toBe(info.sha256);
    expect(structureOf(fewWords, modality, readOnnx(path)).misfits).toEqual([]);
    expect(await isPulled(path, wanted)).toBe(true);
    expect(await isPulled(path, { ...wanted, sha256: "0".repeat(64) })).toBe(false);
    // no files of the pull remain
    expect((await readdir(dirname(path))).sort()).toEqual(["model.onnx", "model.onnx.json"]);
  }
});

test("writes no tower if one cannot be converted", async () => {
  const tensors = smallOpenClip(fewWords).tensors;
  tensors.delete("text_projection");
  const body = safetensorsFile(tensors);
  const weights = { ...wanted, bytes: body.length, sha256: sha256(body) };
  const towers = [
    { modality: "image", file: model },
    { modality: "text", file: join(folder, "text", "model.onnx") },
  ] as const;
  await expect(pull(await serve(file(body)), { weights, towers })).rejects.toThrow(
    /is complete but cannot be converted: .*'text_projection' must be F32 \[64, 512\], got none$/,
  );
  expect(existsSync(model)).toBe(false);
  expect(existsSync(pullPartPath(model))).toBe(true);
});

describe("an ONNX file", () => {
  let body: Buffer;
  let weights: HubWeights;
  beforeAll(async () => {
    body = await readFile(await ensureTinyModel(openclipVitB32));
    const own = { file: "visual/model.onnx", bytes: body.length, sha256: sha256(body) };
    weights = { ...wanted, ...own };
  });

  test("that fits the spec is kept unchanged", async () => {
    const { towers } = await pull(await serve(file(body)), { weights });
    const [{ info }] = towers as [(typeof towers)[number]];
    expect(info).toMatchObject({ source: "pulled", sha256: weights.sha256 });
    expect((await readFile(model)).equals(body)).toBe(true);
    expect(await modelInfo(model)).toEqual(info);
    expect(await isPulled(model, weights)).toBe(true);
  });

  test("of another model is rejected", async () => {
    await expect(pull(await serve(file(body)), { weights, spec: mobileclip2S0 })).rejects.toThrow(
      /model\.pull\.onnx\.part: does not fit mobileclip2-s0: input 'image' must be FP32 \[3, 256, 256\] or UINT8 \[256, 256, 3\], got FP32 \[3, 224, 224\]$/,
    );
    expect(existsSync(model)).toBe(false);
  });

  test("of another tower is rejected", async () => {
    const towers = [{ modality: "text", file: model }] as const;
    await expect(pull(await serve(file(body)), { weights, towers })).rejects.toThrow(
      / has only the image tower, requested: text; rerun with --modality image$/,
    );
  });
});

test("rejects another checksum, and keeps the old file", async () => {
  await putOldModel();
  const other = Buffer.from(published);
  other[other.length - 1]! ^= 1;
  await expect(pull(await serve(file(other)))).rejects.toThrow(
    `model.safetensors: sha256 must be ${wanted.sha256}, got ${sha256(other)} (${other.length} bytes)`,
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
  const error = await pull(server, {
    towers: [{ modality: "image", file: join(folder, "plain", "model.onnx") }],
  }).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(FolderError);
  expect((error as Error).message).toMatch(/plain: cannot be written: E[A-Z]+$/);
  expect(server.requests).toHaveLength(0);
});

test("fails before the download if the disk space is insufficient", async () => {
  const server = await serve(file(published));
  const huge = { ...wanted, bytes: 2 ** 52 };
  await expect(pull(server, { weights: huge })).rejects.toThrow(
    /1: must have 9007199255 MB of free space, got \d+ MB$/,
  );
  expect(server.requests).toHaveLength(0);
});
