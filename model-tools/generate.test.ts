import { createHash } from "node:crypto";
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { embeddingDims, imageElements, openclipVitB32 } from "../contract/model-signature.ts";
import { ensureModel, ensureTinyModel, generateModel } from "./generate.ts";
import { modelInfo, readSidecar, sidecarPath } from "./model-info.ts";
import { onnxBytes, onnxChunks } from "./onnx-writer.ts";
import { profiles, visionTransformer } from "./vision-transformer.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-model-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const tiny = (file: string, seed = 1) =>
  generateModel({ profile: "tiny", seed, file: join(folder, file) });

/** Two images: a smooth one and a busy one, values like CLIP-normalised pixels. */
function images(): Float32Array {
  return Float32Array.from({ length: 2 * imageElements }, (_, i) =>
    i < imageElements ? Math.sin(i / 9_000) : ((i * 7_919) % 401) / 100 - 2,
  );
}

async function run(file: string, data: Float32Array): Promise<Tensor> {
  const session = await InferenceSession.create(file, { intraOpNumThreads: 1 });
  const batch = data.length / imageElements;
  const image = new Tensor("float32", data, [batch, ...openclipVitB32.inputs[0].dims]);
  const { embedding } = await session.run({ image });
  await session.release();
  return embedding!;
}

function cosine(a: Float32Array, b: Float32Array): number {
  const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, v, i) => sum + v * y[i]!, 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
}

test("the same seed produces the same bytes on every machine", async () => {
  const info = await tiny("pinned.onnx");
  const bytes = await readFile(join(folder, "pinned.onnx"));
  expect(createHash("sha256").update(bytes).digest("hex")).toBe(info.sha256);
  expect(info.sha256).toBe("3deaf0776bebf2f12fb3cc8fbf9dc66d7c56146b79e20c8371be6f62dc144e25");
});

test("leaves no files if the output is a folder", async () => {
  await mkdir(join(folder, "models"));
  await expect(tiny("models")).rejects.toMatchObject({ code: "EISDIR" });
  expect((await readdir(folder)).filter((name) => name.startsWith("models"))).toEqual(["models"]);
});

test("another seed produces other weights", async () => {
  expect((await tiny("seed-1.onnx", 1)).sha256).not.toBe((await tiny("seed-2.onnx", 2)).sha256);
});

test("the tiny model is under 1 MB and the full one has 88 million parameters", () => {
  expect(onnxBytes(visionTransformer(profiles.tiny, 1))).toBeLessThan(1_000_000);
  const parameters = visionTransformer(profiles["vit-b-32"], 1).initializers.reduce(
    (sum, { dims }) => sum + dims.reduce((product, dim) => product * dim, 1),
    0,
  );
  expect(parameters).toBeGreaterThan(87_800_000);
  expect(parameters).toBeLessThan(88_300_000);
});

test("computes the size of the file in advance", () => {
  const model = visionTransformer(profiles.tiny, 3);
  let bytes = 0;
  for (const chunk of onnxChunks(model)) bytes += chunk.byteLength;
  expect(bytes).toBe(onnxBytes(model));
});

test("ONNX Runtime runs it with the signature of the contract, for any batch", async () => {
  const file = await ensureTinyModel();
  const both = await run(file, images());
  expect(both.dims).toEqual([2, embeddingDims]);
  const [first, second] = [0, 1].map((i) =>
    (both.data as Float32Array).subarray(i * embeddingDims, (i + 1) * embeddingDims),
  );
  expect(first!.every(Number.isFinite)).toBe(true);
  const alone = await run(file, images().subarray(0, imageElements));
  expect(cosine(alone.data as Float32Array, first!)).toBeGreaterThan(0.99999);
  expect(cosine(first!, second!)).toBeLessThan(0.95);
});

test("writes a sidecar and no other files", async () => {
  const info = await tiny("sub/model.onnx", 5);
  expect((await readdir(join(folder, "sub"))).sort()).toEqual(["model.onnx", "model.onnx.json"]);
  expect(await readSidecar(join(folder, "sub/model.onnx"))).toEqual(info);
  expect(info).toMatchObject({
    schema: 1,
    source: "generated",
    weights: "random",
    seed: 5,
    architecture: "tiny",
    opset: 17,
  });
});

test("reports progress up to the last byte", async () => {
  const seen: number[] = [];
  const file = join(folder, "progress.onnx");
  const info = await generateModel({
    profile: "tiny",
    seed: 1,
    file,
    onProgress: ({ bytes, total }) => seen.push(bytes / total),
  });
  expect(info.bytes).toBeGreaterThan(0);
  expect(seen.at(-1)).toBe(1);
});

test("concurrent generations of one file leave one complete file", async () => {
  const infos = await Promise.all([1, 2, 3].map(() => tiny("many/model.onnx", 7)));
  expect(new Set(infos.map((info) => info.sha256)).size).toBe(1);
  expect((await readdir(join(folder, "many"))).sort()).toEqual(["model.onnx", "model.onnx.json"]);
  expect(await modelInfo(join(folder, "many/model.onnx"))).toEqual(infos[0]);
});

test("removes only abandoned partial files", async () => {
  const names = ["model.41.1.onnx.part", "model.42.1.onnx.part"];
  await tiny("killed/model.onnx");
  for (const name of names) await writeFile(join(folder, "killed", name), "half");
  const hourAgo = new Date(Date.now() - 3_600_000);
  await utimes(join(folder, "killed", names[0]!), hourAgo, hourAgo);
  await tiny("killed/model.onnx", 2);
  expect((await readdir(join(folder, "killed"))).sort()).toEqual([
    names[1],
    "model.onnx",
    "model.onnx.json",
  ]);
});

test("a file without a sidecar is of unknown source, and its checksum is computed", async () => {
  const info = await tiny("bare.onnx");
  await rm(sidecarPath(join(folder, "bare.onnx")));
  expect(await modelInfo(join(folder, "bare.onnx"))).toEqual({
    schema: 1,
    sha256: info.sha256,
    bytes: info.bytes,
    source: "unknown",
    weights: "unknown",
  });
});

test("ignores a sidecar with another file size", async () => {
  const info = await tiny("cut.onnx");
  await truncate(join(folder, "cut.onnx"), 1_000);
  const found = await modelInfo(join(folder, "cut.onnx"));
  expect(found).toMatchObject({ bytes: 1_000, source: "unknown", weights: "unknown" });
  expect(found.sha256).not.toBe(info.sha256);
});

test("the tiny model is generated once and reused", async () => {
  const [first, second] = await Promise.all([ensureTinyModel(), ensureTinyModel()]);
  expect(second).toBe(first);
  expect(await ensureTinyModel()).toBe(first);
  expect((await modelInfo(first)).architecture).toBe("tiny");
});

test("a truncated generated file is generated again", async () => {
  const file = join(folder, "again.onnx");
  const info = await tiny("again.onnx");
  await truncate(file, 1_000);
  await ensureModel(file, "tiny");
  expect(await modelInfo(file)).toEqual(info);
});

test("a file from another source is kept", async () => {
  const file = join(folder, "mine.onnx");
  await writeFile(file, "real weights");
  await ensureModel(file, "tiny");
  expect(await readFile(file, "utf8")).toBe("real weights");
});

test("fails if the seed is not a 32-bit integer", async () => {
  await expect(tiny("never.onnx", 1.5)).rejects.toThrow("seed must be a 32-bit integer, got 1.5");
});

test("fails if there is no model file", async () => {
  const file = join(folder, "nothing.onnx");
  await expect(modelInfo(file)).rejects.toThrow(`model file '${file}' does not exist`);
});
