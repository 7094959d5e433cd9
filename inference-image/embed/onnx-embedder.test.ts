import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { identityModel } from "../../inference/session/test-identity-model.ts";
import { compareModels, syntheticImages } from "../../model-tools/compare-models.ts";
import { generateModel } from "../../model-tools/generate.ts";
import { sha256Of, sidecarPath } from "../../model-tools/model-info.ts";
import { ensureOptimised } from "../../model-tools/optimise.ts";
import { embedWith } from "../../model-tools/run-model.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { openServerModel, type ServerModelOptions } from "./onnx-embedder.ts";

let folder: string;
let modelPath: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-server-model-"));
  modelPath = join(folder, "model.onnx");
  await copyFile(await tinyModel(), modelPath);
  await ensureOptimised(modelPath);
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const [image] = syntheticImages(1);

function open(options: Partial<ServerModelOptions> = {}) {
  return openServerModel({ modelPath, intraOpThreads: 1, ...options });
}

test.each([
  ["fp32", "model.onnx", "FP32"],
  ["fp32-optimised", "model.fp32-optimised.onnx", "UINT8"],
] as const)("loads the file of precision %s", async (precision, name, dataType) => {
  const { session, path, toInput } = await open({ precision });
  const { outputs } = await session.run([toInput([Uint8Array.from(image!)]).tensor]);
  await session.close();
  expect(path).toBe(join(folder, name));
  expect(session.inputs[0]?.dataType).toBe(dataType);
  const got = [Float32Array.from(outputs[0]?.data as Float32Array)];
  const { minCosine } = compareModels(await embedWith(modelPath, [image!]), got);
  expect(minCosine).toBeGreaterThan(0.999999);
});

test("several instances of the model return the same embeddings", async () => {
  const { session, toInput } = await open({ intraOpThreads: 2, instances: 2 });
  const run = () => session.run([toInput([Uint8Array.from(image!)]).tensor]);
  const [one, two] = await Promise.all([run(), run()]);
  await session.close();
  expect(session.instances).toBe(2);
  expect(two.outputs[0]?.data).toEqual(one.outputs[0]?.data);
});

test("fails with the command to run if the file of the precision is missing", async () => {
  const file = join(folder, "model.int8.onnx");
  await expect(open({ precision: "int8" })).rejects.toThrow(
    `[model] ${file}: must exist for MODEL_PRECISION int8; write it with 'npx clipstack model convert --precision int8 --model ${modelPath}'`,
  );
});

test("fails if the prepared file was derived from another model", async () => {
  const other = join(folder, "other.onnx");
  await generateModel({ profile: "tiny", seed: 7, file: other });
  const optimised = join(folder, "model.fp32-optimised.onnx");
  const stale = join(folder, "other.fp32-optimised.onnx");
  await copyFile(optimised, stale);
  await copyFile(sidecarPath(optimised), sidecarPath(stale));
  const [expected, got] = [await sha256Of(other), await sha256Of(modelPath)];
  await expect(open({ modelPath: other, precision: "fp32-optimised" })).rejects.toThrow(
    `${stale}: must be derived from ${other} (sha256 ${expected}), got ${got}; write it with 'npx clipstack model optimise --model ${other}'`,
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
    `[model] ${other}: must be image FP32 [3, 224, 224] -> embedding FP32 [512], or image UINT8 [224, 224, 3] -> embedding FP32 [512], got x FP32 [4] -> y FP32 [4]`,
  );
});

test("fails with one line on a file that is not a model", async () => {
  const text = join(folder, "text.onnx");
  await writeFile(text, "real weights\n");
  await expect(open({ modelPath: text })).rejects.toThrow(
    /^\[model\] [^\n]*text\.onnx: cannot be loaded: [^\n]*$/,
  );
});
