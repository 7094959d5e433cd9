import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ImageInput, ModelSpec } from "../../contract/model-spec.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { identityModel } from "../../inference/session/test-identity-model.ts";
import { syntheticImages } from "../check/compare-models.ts";
import { readSidecar, sha256Of } from "../files/model-info.ts";
import { generateModel } from "../generate/generate.ts";
import { tinyModel, writeModel } from "../generate/test-model.ts";
import { exportedTower } from "../graph/test-exported-tower.ts";
import { readOnnx } from "../onnx/reader.ts";
import { ensureOptimised, optimiseModel } from "./optimise.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-optimise-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const photos = syntheticImages(4, imageTowerOf(defaultModel).input.size);

test("writes a graph of ONNX's own operators that takes pixels, and a manifest", async () => {
  const source = await tinyModel();
  const file = join(folder, "optimised.onnx");
  const info = await optimiseModel(defaultModel, source, file, photos);
  const graph = readOnnx(file);
  expect(graph.inputs[0]?.dims).toEqual(["batch", 224, 224, 3]);
  expect([...graph.opsets.keys()]).toEqual([""]);
  expect(info).toMatchObject({
    source: "derived",
    weights: "random",
    precision: "fp32-optimised",
    derivedFrom: await sha256Of(source),
    sha256: await sha256Of(file),
    versions: { node: process.versions.node },
    agreement: { images: 4 },
  });
  expect(info.agreement!.minCosine).toBeGreaterThan(0.999999);
  expect(info.agreement!.maxDifference).toBeLessThan(2e-5);
  expect(await readSidecar(file)).toEqual(info);
});

test("recognises the tower of an exporter", async () => {
  const source = join(folder, "exported.onnx");
  await writeModel(source, exportedTower());
  const { agreement } = await optimiseModel(
    defaultModel,
    source,
    join(folder, "fast.onnx"),
    photos,
  );
  expect(agreement!.minCosine).toBeGreaterThan(0.999999);
});

test("is rewritten only for another model", async () => {
  const source = join(folder, "model.onnx");
  const inodeOf = async () => (await stat(join(folder, "model.fp32-optimised.onnx"))).ino;
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 3, file: source });
  await ensureOptimised(defaultModel, source);
  const first = await inodeOf();
  await ensureOptimised(defaultModel, source);
  expect(await inodeOf()).toBe(first);
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 4, file: source });
  const file = await ensureOptimised(defaultModel, source);
  expect((await readSidecar(file))?.derivedFrom).toBe(await sha256Of(source));
});

test("keeps a file from another source", async () => {
  const file = join(folder, "mine.onnx");
  await writeFile(file, "mine");
  await ensureOptimised(defaultModel, await tinyModel(), file);
  expect((await stat(file)).size).toBe(4);
});

const unusual = imageSpec({
  ...openclipVitB32.towers.image!.input,
  size: { width: 128, height: 96 },
  resize: { mode: "squash" },
  ...{ layout: "nhwc", channelOrder: "bgr", valueRange: "0..255" },
  ...{ mean: [10, 20, 30], std: [40, 50, 60] },
});

function imageSpec(input: ImageInput): ModelSpec {
  const image = { ...openclipVitB32.towers.image!, input };
  return { ...openclipVitB32, name: "my-model", towers: { image } };
}

test.each([...modelCatalogue.values(), unusual])(
  "a file for $name takes pixels and returns the same embeddings",
  async (spec) => {
    const { size } = spec.towers.image!.input;
    const source = await tinyModel(spec);
    const file = join(folder, `${spec.name}-u8.onnx`);
    const own = syntheticImages(3, size);
    const { agreement } = await optimiseModel(spec, source, file, own);
    expect(agreement!.minCosine).toBeGreaterThan(0.999999);
    expect(readOnnx(file).inputs).toMatchObject([
      { name: "image", dims: ["batch", size.height, size.width, 3] },
    ]);
  },
);

test("keeps a graph that is not recognised, after a conversion of the pixels", async () => {
  const source = join(folder, "lite0.onnx");
  await generateModel({ spec: efficientnetLite0, profile: "full", seed: 1, file: source });
  const file = join(folder, "lite0-u8.onnx");
  const info = await optimiseModel(efficientnetLite0, source, file, photos);
  expect(info).toMatchObject({ parts: ["input"], model: "efficientnet-lite0" });
  expect(readOnnx(file).nodes.length).toBeGreaterThan(readOnnx(source).nodes.length);
});

test("fails on a graph with another input and leaves no files", async () => {
  const source = join(folder, "identity.onnx");
  await writeFile(source, identityModel("FP32", ["N", 4]));
  const file = join(folder, "none.onnx");
  await expect(optimiseModel(defaultModel, source, file, photos)).rejects.toThrow(
    /identity\.onnx: must have the input 'image' FP32 \[3, 224, 224\] or UINT8 \[224, 224, 3\], got /,
  );
  await expect(stat(file)).rejects.toThrow("ENOENT");
});
