import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { identityModel } from "../../inference/session/test-identity-model.ts";
import {
  compareModels,
  syntheticImages,
  unitLength,
} from "../../model-tools/check/compare-models.ts";
import { embedWith } from "../../model-tools/check/run-model.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { sha256Of, sidecarPath } from "../../model-tools/files/model-info.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { createOnnxEmbedder } from "./onnx-embedder.ts";
import { openServerModel, type ServerModelOptions } from "./server-model.ts";

let folder: string;
let modelPath: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-server-model-"));
  modelPath = join(folder, "model.onnx");
  await copyFile(await tinyModel(), modelPath);
  await ensureOptimised(defaultModel, modelPath);
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const [image] = syntheticImages(1, imageTowerOf(defaultModel).input.size);

function open(options: Partial<ServerModelOptions> = {}) {
  return openServerModel({ spec: defaultModel, modelPath, intraOpThreads: 1, ...options });
}

test.each([
  ["fp32", "model.onnx", "FP32"],
  ["fp32-optimised", "model.fp32-optimised.onnx", "UINT8"],
] as const)("loads the file of precision %s", async (precision, name, dataType) => {
  const model = await open({ precision });
  const { session, path } = model;
  const embedder = createOnnxEmbedder(model, { maxQueueDelayMicroseconds: 0 });
  const [got] = await embedder.embed([Uint8Array.from(image!)]);
  await embedder.close();
  expect(path).toBe(join(folder, name));
  expect(session.inputs[0]?.dataType).toBe(dataType);
  const [expected] = await embedWith(defaultModel, modelPath, [image!]);
  const { minCosine } = compareModels([unitLength(expected!)], [got!]);
  expect(minCosine).toBeGreaterThan(0.999999);
});

test("several instances of the model return the same embeddings", async () => {
  const model = await open({ intraOpThreads: 2, instances: 2 });
  const embedder = createOnnxEmbedder(model, { maxQueueDelayMicroseconds: 0 });
  const run = () => embedder.embed([Uint8Array.from(image!)]);
  const [one, two] = await Promise.all([run(), run()]);
  await embedder.close();
  expect(model.session.instances).toBe(2);
  expect(two).toEqual(one);
});

test("fails with the command to run if the file of the precision is missing", async () => {
  const file = join(folder, "model.int8.onnx");
  await expect(open({ precision: "int8" })).rejects.toThrow(
    `[model] ${file}: must exist for MODEL_PRECISION int8; write it with 'npx clipstack model convert --precision int8 --weights ${modelPath}'`,
  );
});

test("fails if the prepared file was derived from another model", async () => {
  const other = join(folder, "other.onnx");
  await generateModel({ spec: defaultModel, profile: "tiny", seed: 7, file: other });
  const optimised = join(folder, "model.fp32-optimised.onnx");
  const stale = join(folder, "other.fp32-optimised.onnx");
  await copyFile(optimised, stale);
  await copyFile(sidecarPath(optimised), sidecarPath(stale));
  const [expected, got] = [await sha256Of(other), await sha256Of(modelPath)];
  await expect(open({ modelPath: other, precision: "fp32-optimised" })).rejects.toThrow(
    `${stale}: must be derived from ${other} (sha256 ${expected}), got ${got}; write it with 'npx clipstack model optimise --weights ${other}'`,
  );
});

test("fails if the prepared file has no manifest", async () => {
  const optimised = join(folder, "bare.fp32-optimised.onnx");
  await copyFile(modelPath, join(folder, "bare.onnx"));
  await copyFile(join(folder, "model.fp32-optimised.onnx"), optimised);
  await expect(
    open({ modelPath: join(folder, "bare.onnx"), precision: "fp32-optimised" }),
  ).rejects.toThrow(`${optimised}: must have a manifest ${optimised}.json that names its source`);
});

test("fails on a model with other inputs and outputs", async () => {
  const other = join(folder, "identity.onnx");
  await writeFile(other, identityModel("FP32", ["N", 4]));
  await expect(open({ modelPath: other })).rejects.toThrow(
    `[model] ${other}: must have the input 'image' FP32 [3, 224, 224] or UINT8 [224, 224, 3], got 'x' FP32 [4]`,
  );
});
