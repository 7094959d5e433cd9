import { mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { identityModel } from "../inference/session/test-identity-model.ts";
import { syntheticImages } from "./compare-models.ts";
import { generateModel } from "./generate.ts";
import { readSidecar, sha256Of } from "./model-info.ts";
import { readOnnx } from "./onnx-reader.ts";
import { ensureOptimised, optimiseModel } from "./optimise.ts";
import { exportedTower } from "./test-exported-tower.ts";
import { tinyModel, writeModel } from "./test-model.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-optimise-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const photos = syntheticImages(4);

test("writes a graph of ONNX's own operators that takes pixels, and a manifest", async () => {
  const source = await tinyModel();
  const file = join(folder, "optimised.onnx");
  const info = await optimiseModel(source, file, photos);
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
  const { agreement } = await optimiseModel(source, join(folder, "fast.onnx"), photos);
  expect(agreement!.minCosine).toBeGreaterThan(0.999999);
});

test("is rewritten only for another model", async () => {
  const source = join(folder, "model.onnx");
  const inodeOf = async () => (await stat(join(folder, "model.fp32-optimised.onnx"))).ino;
  await generateModel({ profile: "tiny", seed: 3, file: source });
  await ensureOptimised(source);
  const first = await inodeOf();
  await ensureOptimised(source);
  expect(await inodeOf()).toBe(first);
  await generateModel({ profile: "tiny", seed: 4, file: source });
  const file = await ensureOptimised(source);
  expect((await readSidecar(file))?.derivedFrom).toBe(await sha256Of(source));
});

test("keeps a file from another source", async () => {
  const file = join(folder, "mine.onnx");
  await writeFile(file, "mine");
  await ensureOptimised(await tinyModel(), file);
  expect((await stat(file)).size).toBe(4);
});

test("fails on a graph that is not an image tower and leaves no files", async () => {
  const source = join(folder, "identity.onnx");
  await writeFile(source, identityModel("FP32", ["N", 4]));
  const file = join(folder, "none.onnx");
  await expect(optimiseModel(source, file, photos)).rejects.toThrow(
    /identity\.onnx: its image tower must be recognised to be optimised: /,
  );
  await expect(stat(file)).rejects.toThrow("ENOENT");
});
