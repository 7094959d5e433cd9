import { readFileSync } from "node:fs";
import { cp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { type InferRequest, toWire } from "../client/triton/wire.ts";
import { imageTowerOf } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import type { ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { preprocess } from "../inference/preprocess/preprocess.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { OipError } from "./oip-error.ts";
import { fullTestRepository, type TestRepository } from "./test-repository.ts";

const jpeg = "openclip_vit_b32_jpeg";
const u8 = "openclip_vit_b32_u8";
const python = "openclip_vit_b32_preprocess";
const image = readFileSync(new URL("../model-tools/samples/sunset.jpg", import.meta.url));
const other = readFileSync(new URL("../model-tools/samples/flower-exif-6.jpg", import.meta.url));
const noImage = Buffer.from("GIF89a is not supported");

const explicit = { "model-control-mode": "explicit" } as const;

interface Opened {
  readonly registry: ModelRegistry;
  readonly repository: TestRepository;
  readonly log: readonly string[];
}

async function open(
  overrides: Partial<ResolvedTritonFlags> = {},
  prepare: (path: string) => Promise<unknown> = async () => {},
): Promise<Opened> {
  const repository = await fullTestRepository();
  onTestFinished(() => repository.remove());
  // one session is enough here
  for (const model of ["openclip_vit_b32", "openclip_vit_b32_trt"]) {
    await rm(join(repository.path, model), { recursive: true });
  }
  await prepare(repository.path);
  const log: string[] = [];
  const registry = await openModelRegistry(repository.flags(overrides), (line) => log.push(line));
  onTestFinished(() => registry.close());
  return { registry, repository, log };
}

const edit = (path: string, model: string, change: (config: string) => string) =>
  readFile(join(path, model, "config.pbtxt"), "utf8").then((config) =>
    writeFile(join(path, model, "config.pbtxt"), change(config)),
  );

function requestOf(
  images: readonly Uint8Array[],
  extra: Partial<InferRequest> & { readonly input?: string } = {},
): InferRequest {
  const { input = "image", ...rest } = extra;
  const shape = [images.length, 1];
  const tensor = toWire({ name: input, dataType: "BYTES", shape, data: images });
  return { id: "", parameters: {}, inputs: [tensor], outputs: [], binaryOutputs: true, ...rest };
}

const rejection = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error as OipError,
  );

describe("openclip_vit_b32_jpeg", () => {
  test("returns the same embeddings as its models called in sequence", async () => {
    const { registry } = await open();
    const answer = await registry.model(jpeg).infer(requestOf([image, other]));
    const embeddings = answer.outputs[0]!.tensor;
    expect([embeddings.name, embeddings.dataType, embeddings.shape]).toEqual([
      "embedding",
      "FP32",
      [2, 512],
    ]);
    for (const [index, file] of [image, other].entries()) {
      const pixels = await preprocess(file, imageTowerOf(defaultModel).input, {
        maxPixels: 40_000_000,
      });
      const input = toWire({
        name: "image",
        dataType: "UINT8",
        shape: [1, 224, 224, 3],
        data: pixels,
      });
      const alone = await registry.model(u8).infer({ ...requestOf([]), inputs: [input] });
      const row = (embeddings.data as Float32Array).subarray(index * 512, (index + 1) * 512);
      const same = alone.outputs[0]!.tensor.data as Float32Array;
      for (const [column, value] of row.entries()) expect(value).toBeCloseTo(same[column]!, 4);
    }
  });

  test("counts its models separately and itself with the sum of their compute times", async () => {
    const { registry } = await open();
    await registry.model(jpeg).infer(requestOf([image, image, other]));
    const counters = (name: string) => registry.model(name).counters;
    for (const name of [jpeg, u8, python]) {
      const { inferenceCount, executionCount, success, batches } = counters(name);
      expect([inferenceCount, executionCount, success.count]).toEqual([3, 1, 1]);
      expect(batches.map(({ batchSize }) => batchSize)).toEqual([3]);
    }
    const computeNs = (name: string) => counters(name).computeInfer.ns;
    expect(computeNs(python)).toBeGreaterThan(0);
    expect(Math.abs(computeNs(jpeg) - computeNs(u8) - computeNs(python))).toBeLessThan(10);
    expect(counters(jpeg).queue.ns).toBe(0);
    expect(counters(jpeg).success.ns).toBeGreaterThan(counters(u8).success.ns);
  });

  test("reports an unreadable image by its index in the batch", async () => {
    const { registry } = await open();
    const error = await rejection(registry.model(jpeg).infer(requestOf([image, noImage, other])));
    expect(error).toEqual(
      new OipError(
        "invalid-argument",
        `in ensemble '${jpeg}', image 1 is not a JPEG, PNG or WebP file`,
      ),
    );
    const { counters } = registry.model(python);
    expect([counters.failures.BACKEND, counters.success.count]).toEqual([1, 0]);
    expect(registry.model(jpeg).counters.failures.OTHER).toBe(1);
    expect(registry.model(u8).counters.executionCount).toBe(0);
  });

  test("a request queued longer than its timeout is dropped before inference", async () => {
    const { registry } = await open({}, (path) =>
      edit(path, u8, (config) =>
        config.replace("max_queue_delay_microseconds: 0", "max_queue_delay_microseconds: 8000000"),
      ),
    );
    const error = await rejection(
      registry.model(jpeg).infer(requestOf([image], { parameters: { timeout: 1_500_000 } })),
    );
    expect(error).toMatchObject({ code: "unavailable" });
    // the step in which the timeout passes depends on the machine
    expect(error?.message).toMatch(/Request timeout expired$/);
    expect(registry.model(u8).counters.executionCount).toBe(0);
    expect(registry.model(jpeg).counters.failures.REJECTED).toBe(1);
  });

  test("a request of a disconnected client is dropped before inference", async () => {
    const { registry } = await open();
    const gone = AbortSignal.abort();
    const error = await rejection(registry.model(jpeg).infer(requestOf([image]), gone));
    expect(error).toMatchObject({ code: "cancelled" });
    for (const name of [python, u8]) expect(registry.model(name).counters.executionCount).toBe(0);
  });

  test("a stop answers the accepted requests", async () => {
    const { registry } = await open();
    const answers = [image, other].map((file) => registry.model(jpeg).infer(requestOf([file])));
    await registry.close();
    expect(await Promise.all(answers)).toHaveLength(2);
  });
});

describe("openclip_vit_b32_preprocess", () => {
  test("uses the preprocessing of the embed server, bit for bit", async () => {
    const { registry } = await open();
    const answer = await registry
      .model(python)
      .infer(requestOf([other, image], { input: "encoded" }));
    const { shape, data } = answer.outputs[0]!.tensor;
    expect(shape).toEqual([2, 224, 224, 3]);
    const first = (data as Uint8Array).subarray(0, 224 * 224 * 3);
    expect(
      Buffer.compare(
        first,
        await preprocess(other, imageTowerOf(defaultModel).input, { maxPixels: 40_000_000 }),
      ),
    ).toBe(0);
  });

  test("decodes at most the pixels that its configuration allows", async () => {
    const { registry } = await open({}, (path) =>
      edit(path, python, (config) => config.replace("40000000", "1000")),
    );
    const error = await rejection(
      registry.model(python).infer(requestOf([image], { input: "encoded" })),
    );
    expect(error?.message).toMatch(/^image 0 has \d+ × \d+ pixels, more than the limit of 1000$/);
  });
});

describe("fails to load", () => {
  test("a Python model that does not preprocess", async () => {
    const starting = open({}, async (path) => {
      await cp(join(path, python), join(path, "custom"), { recursive: true });
      await edit(path, "custom", (config) =>
        config.replace(python, "custom").replace("max_image_pixels", "limit"),
      );
    });
    await expect(starting).rejects.toThrow(
      "failed to load model 'custom': model 'custom' has the backend python, which this server supports for preprocessing only, with its own preprocessing: it must have the parameter max_image_pixels",
    );
  });

  test("an invalid pixel limit", async () => {
    const starting = open({ ...explicit, "load-model": [python] }, (path) =>
      edit(path, python, (config) => config.replace("40000000", "many")),
    );
    await expect(starting).rejects.toThrow(
      "model 'openclip_vit_b32_preprocess': parameter max_image_pixels must be a number of pixels, got 'many'",
    );
  });

  test("a size that differs from its output", async () => {
    const starting = open({ ...explicit, "load-model": [python] }, (path) =>
      edit(path, python, (config) => config.replace('string_value: "224"', 'string_value: "256"')),
    );
    await expect(starting).rejects.toThrow(
      "output 'pixels' must have the model's shape [-1,224,256,3], got [-1,224,224,3]",
    );
  });

  test("an ensemble if one of its models did not load, with the reason", async () => {
    const { registry, log } = await open({ "exit-on-error": false }, (path) =>
      rm(join(path, u8, "1", "model.onnx")),
    );
    expect(registry.ready).toBe(false);
    expect(registry.modelReady(python)).toBe(true);
    expect(log.find((line) => line.startsWith(`failed to load '${jpeg}'`))).toBe(
      `failed to load '${jpeg}': ensemble ${jpeg} contains models that are not available or ambiguous: ${u8}`,
    );
  });

  test("an ensemble with a model that waits for itself", async () => {
    const { log } = await open({ "exit-on-error": false }, (path) =>
      edit(path, jpeg, (config) => config.replace(`model_name: "${u8}"`, `model_name: "${jpeg}"`)),
    );
    expect(log.find((text) => text.startsWith(`failed to load '${jpeg}': `))).toContain(
      `circular dependency between ensembles: ${jpeg} -> ${jpeg}`,
    );
  });
});

describe("with explicit model control", () => {
  test("loading an ensemble loads its models", async () => {
    const { registry } = await open({ ...explicit, "load-model": [jpeg] });
    expect(registry.models.map(({ name }) => name)).toEqual([jpeg, python, u8]);
  });

  test("an ensemble is unavailable while one of its models is not loaded", async () => {
    const { registry } = await open({ ...explicit, "load-model": ["*"] });
    await registry.unload(u8);
    expect(registry.modelReady(jpeg)).toBe(false);
    expect(await registry.index()).toContainEqual({
      name: jpeg,
      version: "1",
      state: "UNAVAILABLE",
      reason: "unloaded",
    });
    expect(() => registry.model(jpeg)).toThrow(
      new OipError("not-found", `Request for unknown model: '${jpeg}' has no available versions`),
    );
    expect(registry.ready).toBe(true);
    await registry.load(u8);
    expect(registry.modelReady(jpeg)).toBe(true);
    expect((await registry.model(jpeg).infer(requestOf([image]))).outputs).toHaveLength(1);
  });

  test("the ensemble uses a model reloaded with another queue delay", async () => {
    const { registry } = await open({ ...explicit, "load-model": ["*"] });
    const { config } = registry.model(u8);
    const batching = { ...config.dynamic_batching, max_queue_delay_microseconds: 100 };
    await registry.load(u8, JSON.stringify({ ...config, dynamic_batching: batching }));
    expect(registry.model(u8).config.dynamic_batching?.max_queue_delay_microseconds).toBe(100);
    expect((await registry.model(jpeg).infer(requestOf([image]))).outputs).toHaveLength(1);
  });
});
