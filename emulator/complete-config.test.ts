import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import { writeModel } from "../model-tools/generate/test-model.ts";
import { exportedTower } from "../model-tools/graph/test-exported-tower.ts";
import { type ModelRegistry, openModelRegistry, type RegistryFlags } from "./model-registry.ts";
import { type TestRepository, testRepository } from "./test-repository.ts";

const dims = normalisedImage(imageTowerOf(defaultModel)).dims;
const model = "mine";

let repository: TestRepository;
const opened: ModelRegistry[] = [];
beforeEach(async () => {
  repository = await testRepository({ [`${model}/config.pbtxt`]: "" });
});
afterEach(async () => {
  for (const registry of opened.splice(0)) await registry.close();
  await repository.remove();
});

async function open(flags: Partial<RegistryFlags> = {}) {
  const registry = await openModelRegistry(repository.flags(flags), () => {});
  opened.push(registry);
  return registry.model(model);
}

const configure = async (text: string) => {
  const other = await testRepository({ [`${model}/config.pbtxt`]: text });
  await repository.remove();
  repository = other;
};

/** Replaces the file by one with batch size 1. */
async function useFixedBatch(): Promise<void> {
  const file = join(repository.path, model, "1", "model.onnx");
  await rm(file);
  await writeModel(file, exportedTower({ batch: 1 }));
}

const infer = (served: Awaited<ReturnType<typeof open>>, shape: readonly number[]) =>
  served.infer({
    ...{ id: "", parameters: {}, outputs: [], binaryOutputs: true },
    inputs: [
      { name: "image", dataType: "FP32", shape, bytes: new Uint8Array(4 * elementCount(shape)) },
    ],
  });

const tensors = {
  input: [{ name: "image", data_type: "TYPE_FP32", dims }],
  output: [{ name: "embedding", data_type: "TYPE_FP32", dims: [512] }],
};

test.each<[string, string | undefined, object]>([
  ["missing", undefined, { max_batch_size: 4, dynamic_batching: {}, ...tensors }],
  ["empty", "", { max_batch_size: 4, dynamic_batching: {}, ...tensors }],
  [
    "without tensors",
    'backend: "onnxruntime" max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 7 }',
    { max_batch_size: 8, dynamic_batching: { max_queue_delay_microseconds: 7 }, ...tensors },
  ],
  [
    "without outputs",
    'max_batch_size: 1 input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 224, -1 ] } ]',
    {
      max_batch_size: 1,
      input: [{ name: "image", dims: [3, 224, -1] }],
      output: tensors.output,
    },
  ],
])("completes a configuration that is %s", async (_, text, expected) => {
  if (text === undefined) await rm(join(repository.path, model, "config.pbtxt"));
  else await configure(text);
  const served = await open();
  expect(served.config).toMatchObject({
    ...{ name: model, platform: "onnxruntime_onnx", backend: "onnxruntime" },
    ...{ default_model_filename: "model.onnx", version_policy: { latest: { num_versions: 1 } } },
    ...expected,
  });
  const { outputs } = await infer(served, [1, ...dims]);
  expect(outputs[0]?.tensor.shape).toEqual([1, 512]);
});

test("keeps the batch size of a configuration with inputs and outputs", async () => {
  await configure(`
    input [ { name: "image" data_type: TYPE_FP32 dims: [ -1, 3, 224, 224 ] } ]
    output [ { name: "embedding" data_type: TYPE_FP32 dims: [ -1, 512 ] } ]`);
  const served = await open();
  expect(served.config.max_batch_size).toBe(0);
  expect(served.config.dynamic_batching).toBeUndefined();
  const { outputs } = await infer(served, [2, ...dims]);
  expect(outputs[0]?.tensor.shape).toEqual([2, 512]);
});

test("a model with a fixed batch size has no maximum", async () => {
  await useFixedBatch();
  const served = await open();
  expect(served.config).toMatchObject({
    max_batch_size: 0,
    input: [{ dims: [1, ...dims] }],
    output: [{ dims: [1, 512] }],
  });
  expect((await infer(served, [1, ...dims])).outputs[0]?.tensor.shape).toEqual([1, 512]);
  await expect(infer(served, [2, ...dims])).rejects.toThrow(
    "unexpected shape for input 'image' for model 'mine'. Expected [1,3,224,224], got [2,3,224,224]",
  );
});

test("rejects a maximum for a model with a fixed batch size", async () => {
  await configure("max_batch_size: 8");
  await useFixedBatch();
  await expect(open()).rejects.toThrow(
    "autofill failed for model 'mine': model does not support batching while non-zero max_batch_size is specified",
  );
});

test("requires a complete configuration with --disable-auto-complete-config", async () => {
  const strict = { "disable-auto-complete-config": true };
  await expect(open(strict)).rejects.toThrow("platform must be onnxruntime_onnx or ensemble");
  await rm(join(repository.path, model, "config.pbtxt"));
  await expect(open(strict)).rejects.toThrow(/config\.pbtxt: No such file or directory$/);
});

test("rejects a folder without a model", async () => {
  await mkdir(join(repository.path, "empty"));
  await expect(open()).rejects.toThrow("failed to load model 'empty': at least one version");
});
