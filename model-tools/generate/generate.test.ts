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
import { embeddingTensor, imageBytes, normalisedImage } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { catalogueSpecs, defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { modelInfo, readSidecar, sidecarPath } from "../files/model-info.ts";
import { onnxBytes, onnxChunks } from "../onnx/writer.ts";
import { architectureOf, type ModelProfile, randomImageTower } from "./architectures.ts";
import { convolutionLayers } from "./efficientnet.ts";
import { ensureModel, ensureTinyModel, generateModel } from "./generate.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-model-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const tiny = (file: string, seed = 1) =>
  generateModel({ spec: defaultModel, profile: "tiny", seed, file: join(folder, file) });

const full = (spec: ModelSpec, profile: ModelProfile = "full") =>
  randomImageTower(spec, profile, 1).model;
const imageElements = 3 * 224 * 224;

/** Two images: a smooth one and a busy one, values like CLIP-normalised pixels. */
function images(): Float32Array {
  return Float32Array.from({ length: 2 * imageElements }, (_, i) =>
    i < imageElements ? Math.sin(i / 9_000) : ((i * 7_919) % 401) / 100 - 2,
  );
}

async function run(file: string, data: Float32Array): Promise<Tensor> {
  const session = await InferenceSession.create(file, { intraOpNumThreads: 1 });
  const batch = data.length / imageElements;
  const image = new Tensor("float32", data, [batch, 3, 224, 224]);
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

const knownModels = catalogueSpecs.filter(
  (spec) => architectureOf(spec, "full").name !== "stand-in",
);

test.each(knownModels)("$name has the parameters of its spec", (spec) => {
  const weights = full(spec).initializers.filter(({ dataType }) => dataType === "FLOAT");
  const parameters = weights.reduce(
    (sum, { dims }) => sum + dims.reduce((product, dim) => product * dim, 1),
    0,
  );
  // specs of DINOv2 count the mask token and the positions of 518 px: 1,370 instead of 257
  const positions = spec.name.startsWith("dinov2") ? (1370 - 257 + 1) * spec.embedding.width : 0;
  // the gains of batch normalisations are part of the kernels
  const gains =
    spec.name === "efficientnet-lite0"
      ? convolutionLayers(spec).reduce((sum, { to }) => sum + to, 0)
      : 0;
  const expected = spec.towers.image!.millionParameters;
  expect((parameters + positions + gains) / 1e6 / expected).toBeCloseTo(1, 3);
});

/** Specs with every property of the image tensors that a graph depends on. */
const unusual: readonly ModelSpec[] = [
  ...modelCatalogue.values(),
  specWith({ layout: "nhwc", size: { width: 250, height: 120 }, tensor: "pixels" }),
  specWith({ layout: "nchw", size: { width: 17, height: 384 } }),
  { ...specWith({}), embedding: { width: 96, normalisedBy: "model" } },
];

function specWith(input: Partial<NonNullable<ModelSpec["towers"]["image"]>["input"]>): ModelSpec {
  const { image } = openclipVitB32.towers;
  const resize = { mode: "squash" } as const;
  return {
    ...openclipVitB32,
    name: "my-model",
    towers: {
      image: { ...image!, input: { ...image!.input, resize, ...input }, output: "vector" },
    },
  };
}

test.each(unusual)(
  "$name, tiny: ONNX Runtime runs it with the tensors of the spec",
  async (spec) => {
    const tower = spec.towers.image!;
    const session = await InferenceSession.create(await ensureTinyModel(spec));
    const { name, dims } = normalisedImage(tower);
    const values = imageBytes(tower, "fp32")! / 4;
    const images = Float32Array.from({ length: 2 * values }, (_, i) =>
      i < values ? Math.sin(i / 9_000) : ((i * 7_919) % 401) / 100 - 2,
    );
    const outputs = await session.run({ [name]: new Tensor("float32", images, [2, ...dims]) });
    await session.release();
    const { name: output, dims: shape } = embeddingTensor(spec, tower);
    expect(Object.keys(outputs)).toEqual([output]);
    expect(outputs[output]!.dims).toEqual([2, ...shape]);
    const all = outputs[output]!.data as Float32Array;
    const [first, second] = [all.subarray(0, shape[0]), all.subarray(shape[0]!)];
    expect(cosine(first, second)).toBeLessThan(0.95);
    const length = Math.sqrt(first.reduce((sum, value) => sum + value * value, 0));
    if (spec.embedding.normalisedBy === "model") expect(length).toBeCloseTo(1, 5);
  },
);

test("EfficientNet-Lite0 with random weights: different images have different embeddings", async () => {
  const file = join(folder, "lite0.onnx");
  await generateModel({ spec: efficientnetLite0, profile: "full", seed: 1, file });
  const { data, dims } = await run(file, images());
  expect(dims).toEqual([2, 1280]);
  const all = data as Float32Array;
  expect(cosine(all.subarray(0, 1280), all.subarray(1280))).toBeLessThan(0.999);
});

test("a model of unknown architecture gets a stand-in, which its manifest states", async () => {
  const file = join(folder, "stand-in.onnx");
  const info = await generateModel({ spec: specWith({}), profile: "full", seed: 1, file });
  expect(info).toMatchObject({ model: "my-model", architecture: "stand-in", weights: "random" });
});

test("computes the size of the file in advance", () => {
  const model = full(openclipVitB32, "tiny");
  let bytes = 0;
  for (const chunk of onnxChunks(model)) bytes += chunk.byteLength;
  expect(bytes).toBe(onnxBytes(model));
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
    spec: openclipVitB32,
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
  const [first, second] = await Promise.all([
    ensureTinyModel(defaultModel),
    ensureTinyModel(defaultModel),
  ]);
  expect(second).toBe(first);
  expect(await ensureTinyModel(defaultModel)).toBe(first);
  expect((await modelInfo(first)).architecture).toBe("tiny");
});

test("a truncated generated file is generated again", async () => {
  const file = join(folder, "again.onnx");
  const info = await tiny("again.onnx");
  await truncate(file, 1_000);
  await ensureModel(openclipVitB32, file, "tiny");
  expect(await modelInfo(file)).toEqual(info);
});

test("a file from another source is kept", async () => {
  const file = join(folder, "mine.onnx");
  await writeFile(file, "real weights");
  await ensureModel(openclipVitB32, file, "tiny");
  expect(await readFile(file, "utf8")).toBe("real weights");
});

test("fails if the seed is not a 32-bit integer", async () => {
  await expect(tiny("never.onnx", 1.5)).rejects.toThrow("seed must be a 32-bit integer, got 1.5");
});

test("fails if there is no model file", async () => {
  const file = join(folder, "nothing.onnx");
  await expect(modelInfo(file)).rejects.toThrow(`model file '${file}' does not exist`);
});
