import { mkdir, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { describe, expect, onTestFinished, test } from "vitest";
import { toWire } from "../client/triton/wire.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount } from "../contract/tensor.ts";
import type { ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { type ModelRegistry, openModelRegistry } from "./model-registry.ts";
import { OipError } from "./oip-error.ts";
import { type TestRepository, testRepository, tinyConfig } from "./test-repository.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

const model = "openclip_vit_b32";
interface Opened {
  readonly registry: ModelRegistry;
  readonly repository: TestRepository;
  readonly log: readonly string[];
}

/** Opens a registry on a repository with these files and the tiny model. */
async function open(
  files: Readonly<Record<string, string>>,
  overrides: Partial<ResolvedTritonFlags> = {},
  prepare: (path: string) => Promise<void> = async () => {},
): Promise<Opened> {
  const repository = await testRepository(files);
  onTestFinished(() => repository.remove());
  await prepare(repository.path);
  const log: string[] = [];
  const registry = await openModelRegistry(repository.flags(overrides), (line) => log.push(line));
  onTestFinished(() => registry.close());
  return { registry, repository, log };
}

/** Opens a registry with one model; its configuration has `extra` instead of dynamic batching. */
const openWith = (extra: string) => open({ [`${model}/config.pbtxt`]: tinyConfig({ extra }) });

async function infer({ registry }: Opened, items = 1) {
  const data = new Float32Array(items * imageElements).fill(0.5);
  const input = toWire({ name: "image", dataType: "FP32", shape: [items, 3, 224, 224], data });
  return await registry
    .model(model)
    .infer({ id: "", parameters: {}, inputs: [input], outputs: [], binaryOutputs: true });
}

describe("named configurations", () => {
  const files = {
    [`${model}/config.pbtxt`]: tinyConfig(),
    [`${model}/configs/small.pbtxt`]: tinyConfig({ extra: "" }).replace("size: 32", "size: 4"),
  };

  test("uses configs/<name>.pbtxt", async () => {
    const { registry } = await open(files, { "model-config-name": "small" });
    expect(registry.model(model).config.max_batch_size).toBe(4);
  });

  test("does not require a config.pbtxt", async () => {
    const { [`${model}/config.pbtxt`]: _, ...only } = files;
    const { registry } = await open(only, { "model-config-name": "small" });
    expect(registry.model(model).config.max_batch_size).toBe(4);
  });

  test("falls back to config.pbtxt if the model has no such configuration, and logs it", async () => {
    const { registry, log } = await open(files, { "model-config-name": "huge" });
    expect(registry.model(model).config.max_batch_size).toBe(32);
    expect(log[0]).toMatch(/configs\/huge\.pbtxt: no such file, using .*config\.pbtxt$/);
  });
});

describe("one log line lists the differences from Triton", () => {
  test("GPUs, accelerators and instances", async () => {
    const { log } = await openWith(`
      instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0, 1 ] } ]
      optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } }`);
    expect(log).toEqual([
      `'${model}' is configured with KIND_GPU on GPU 0, 1; execution accelerator tensorrt; 4 instances: this server runs it on the CPU, in one session, without warm-up`,
      `successfully loaded '${model}' version 1`,
    ]);
  });

  test("no line without differences", async () => {
    const { log } = await openWith("instance_group [ { kind: KIND_CPU count: 1 } ]");
    expect(log).toEqual([`successfully loaded '${model}' version 1`]);
  });
});

describe("scheduling", () => {
  const batching = `dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 2000000 }`;

  test("batches concurrent requests", async () => {
    const opened = await openWith(batching);
    await Promise.all(Array.from({ length: 8 }, () => infer(opened)));
    const { counters } = opened.registry.model(model);
    expect([counters.inferenceCount, counters.executionCount]).toEqual([8, 1]);
    expect(counters.batches.map(({ batchSize }) => batchSize)).toEqual([8]);
  });

  test("runs each request alone without dynamic_batching", async () => {
    const opened = await openWith("");
    await Promise.all(Array.from({ length: 5 }, () => infer(opened)));
    const { counters } = opened.registry.model(model);
    expect([counters.inferenceCount, counters.executionCount]).toEqual([5, 5]);
    expect(counters.queue.ns).toBeGreaterThan(0);
  });

  test("counts queued requests", async () => {
    const opened = await openWith(batching);
    const calls = Array.from({ length: 3 }, () => infer(opened, 2));
    expect(opened.registry.model(model).pendingRequests).toBe(3);
    const rest = infer(opened, 2);
    expect(opened.registry.model(model).pendingRequests).toBe(0);
    await Promise.all([...calls, rest]);
  });

  test("fails with 'Request timeout expired' after the request's own timeout", async () => {
    const { registry } = await openWith(batching);
    const served = registry.model(model);
    const data = new Float32Array(imageElements);
    const input = toWire({ name: "image", dataType: "FP32", shape: [1, 3, 224, 224], data });
    const parameters = { timeout: 1000 };
    const request = { id: "7", parameters, inputs: [input], outputs: [], binaryOutputs: true };
    await expect(served.infer(request)).rejects.toThrow(
      new OipError("unavailable", "Request timeout expired"),
    );
    expect(served.pendingRequests).toBe(0);
  });

  test("drops a request after its client disconnected and counts it as CANCELED", async () => {
    const { registry } = await openWith(batching);
    const served = registry.model(model);
    const controller = new AbortController();
    const data = new Float32Array(imageElements);
    const input = toWire({ name: "image", dataType: "FP32", shape: [1, 3, 224, 224], data });
    const call = served.infer(
      { id: "", parameters: {}, inputs: [input], outputs: [], binaryOutputs: true },
      controller.signal,
    );
    controller.abort();
    await expect(call).rejects.toMatchObject({ code: "cancelled" });
    expect(served.counters.failures.CANCELED).toBe(1);
    expect(served.counters.executionCount).toBe(0);
  });
});

describe("loading", () => {
  test("serves the versions of the version policy, by default the latest", async () => {
    const addVersion = async (path: string) => {
      await mkdir(join(path, model, "10"));
      await symlink(
        await readlink(join(path, model, "1", "model.onnx")),
        join(path, model, "10", "model.onnx"),
      );
    };
    const files = { [`${model}/config.pbtxt`]: tinyConfig() };
    const latest = await open(files, {}, addVersion);
    expect(latest.registry.models.map(({ version }) => version)).toEqual(["10"]);
    const all = await open(
      { [`${model}/config.pbtxt`]: tinyConfig({ extra: "version_policy { all { } }" }) },
      {},
      addVersion,
    );
    expect(all.registry.models.map(({ version }) => version)).toEqual(["1", "10"]);
    expect(all.registry.model(model).version).toBe("10");
    expect(all.registry.model(model, "1").version).toBe("1");
  });

  const config = tinyConfig();
  test.each(
    Object.entries<string>({
      "dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64":
        config.replace("8, 16, 32", "64"),
      [`default_model_filename '../../other/1/model.onnx' of model '${model}' must be in its folder`]: `${config}\ndefault_model_filename: "../../other/1/model.onnx"`,
      "inference.ModelConfig: unknown field 'max_batch'": `${config}\nmax_batch: 3`,
      [`the name of model 'other' must be that of its folder, '${model}'`]: config.replace(
        model,
        "other",
      ),
      [`at least one version must be available under the version policy of model '${model}'`]: `${config}\nversion_policy { specific { versions: [ 7 ] } }`,
      [`model '${model}' has sequence_batching: not supported by this server`]: tinyConfig({
        extra: "sequence_batching { }",
      }),
      [`model '${model}' has dynamic_batching.default_queue_policy: not supported by this server`]:
        tinyConfig({ extra: "dynamic_batching { default_queue_policy { max_queue_size: 2 } }" }),
    }),
  )("fails: %s", async (message, text) => {
    const failure = open({ [`${model}/config.pbtxt`]: text });
    await expect(failure).rejects.toThrow(OipError);
    await expect(failure).rejects.toThrow(`failed to load model '${model}': `);
    await expect(failure).rejects.toThrow(message);
  });

  test.each(
    Object.entries<string>({
      "model 'mine': output 'embedding' must have the model's shape [-1,512], got [-1,256]":
        config.replace("512", "256"),
      "model 'mine': input 'pixels' must be one of the model's: image": config.replace(
        '"image"',
        '"pixels"',
      ),
      "model 'mine': input 'image' must be TYPE_FP32, got TYPE_UINT8": config.replace(
        "TYPE_FP32",
        "TYPE_UINT8",
      ),
    }),
  )("fails on a configuration: %s", async (message, text) => {
    const failure = open({ "mine/config.pbtxt": text.replace(model, "mine") });
    await expect(failure).rejects.toThrow(`failed to load model 'mine': ${message}`);
  });

  test("fails on a model without configuration, version folder or file", async () => {
    const files = { [`${model}/config.pbtxt`]: tinyConfig() };
    const without = (...path: string[]) =>
      open(files, { "disable-auto-complete-config": true }, (folder) =>
        rm(join(folder, model, ...path), { recursive: true }),
      );
    await expect(without("config.pbtxt")).rejects.toThrow(
      /failed to open text file for read .*config\.pbtxt: No such file or directory$/,
    );
    await expect(without("1")).rejects.toThrow("at least one version must be available");
    await expect(without("1", "model.onnx")).rejects.toThrow(
      /failed to load 'openclip_vit_b32': .*model\.onnx: no such file$/,
    );
  });

  test("fails on a file that is not a model, in one line", async () => {
    const files = { [`${model}/config.pbtxt`]: tinyConfig() };
    const failure = await open(files, {}, async (folder) => {
      await rm(join(folder, model, "1", "model.onnx"));
      await writeFile(join(folder, model, "1", "model.onnx"), "not a model");
    }).catch((error: Error) => error.message);
    expect(failure).toMatch(/^failed to load model 'openclip_vit_b32': .*model\.onnx/);
    expect(failure).not.toContain("\n");
  });

  test("fails on a repository that is missing", async () => {
    const nowhere = { "model-repository": "/no/such/folder" };
    await expect(open({}, nowhere)).rejects.toThrow(
      /^failed to open the model repository: .*ENOENT/,
    );
  });

  test("with exit-on-error=false serves the other models but is not ready", async () => {
    const files = {
      "bad/config.pbtxt": tinyConfig({ name: "bad" }).replace("512", "256"),
      "good/config.pbtxt": tinyConfig({ name: "good" }),
    };
    const { registry } = await open(files, { "exit-on-error": false });
    expect(registry.modelReady("good")).toBe(true);
    expect(registry.modelReady("bad")).toBe(false);
    expect(registry.ready).toBe(false);
    expect(await registry.index()).toEqual([
      {
        name: "bad",
        state: "UNAVAILABLE",
        reason: expect.stringContaining("got [-1,256]"),
      },
      { name: "good", version: "1", state: "READY" },
    ]);
    expect(await registry.index({ readyOnly: true })).toEqual([
      { name: "good", version: "1", state: "READY" },
    ]);
    const lenient = await open(files, { "exit-on-error": false, "strict-readiness": false });
    expect(lenient.registry.ready).toBe(true);
  });
});

test("a model with a terminated runtime is not ready, and the log reports it", async () => {
  const workers: Worker[] = [];
  const onWorker = (worker: Worker) => workers.push(worker);
  process.on("worker", onWorker);
  const opened = await openWith("");
  process.off("worker", onWorker);
  await workers.at(-1)!.terminate();
  await expect(infer(opened)).rejects.toMatchObject({ code: "unavailable" });
  expect(opened.registry.ready).toBe(false);
  expect(opened.registry.modelReady(model)).toBe(false);
  expect(opened.log.at(-1)).toBe(
    `'${model}' version 1: the runtime has exited: the runtime's thread ended: exit code 1`,
  );
  expect(opened.registry.model(model).counters.failures.BACKEND).toBe(1);
});

test("answers the accepted requests before it closes", async () => {
  const opened = await openWith("dynamic_batching { max_queue_delay_microseconds: 2000000 }");
  const calls = [infer(opened), infer(opened)];
  await opened.registry.close();
  expect(await Promise.all(calls)).toHaveLength(2);
});

describe("with explicit control, a changed configuration", () => {
  const extra = (delay: number, count: number) => `
    dynamic_batching { max_queue_delay_microseconds: ${delay} }
    instance_group [ { kind: KIND_CPU count: ${count} } ]`;
  const text = (delay: number, count: number) => tinyConfig({ extra: extra(delay, count) });
  const file = `${model}/configs/single.pbtxt`;
  const openExplicit = () =>
    open(
      { [file]: text(100, 1) },
      { "model-config-name": "single", "model-control-mode": "explicit", "load-model": [model] },
    );
  const change = async ({ registry, repository }: Opened, config: string) => {
    await writeFile(join(repository.path, file), config);
    await registry.load(model);
    return registry.model(model);
  };
  const instances = ({ registry }: Opened) =>
    registry.model(model).config.instance_group.map(({ count }) => count);

  test("is a new model that keeps the counters", async () => {
    const opened = await openExplicit();
    const before = opened.registry.model(model);
    await infer(opened, 3);
    const after = await change(opened, text(200, 1));
    expect(after).not.toBe(before);
    expect(after.config.dynamic_batching?.max_queue_delay_microseconds).toBe(200);
    await infer(opened, 2);
    expect(after.counters.inferenceCount).toBe(5);
  });

  test("resets its counters after an unload", async () => {
    const opened = await openExplicit();
    await infer(opened, 3);
    await opened.registry.unload(model);
    await opened.registry.load(model);
    expect(opened.registry.model(model).counters.inferenceCount).toBe(0);
  });

  test("leaves the loaded model with its configuration and statistics if it is rejected", async () => {
    const opened = await openExplicit();
    const before = opened.registry.model(model);
    await infer(opened, 3);
    const rejected = text(100, 2).replace("size: 32", "size: -1");
    await expect(change(opened, rejected)).rejects.toThrow(
      "max_batch_size must be an integer of at least 0, got -1",
    );
    expect(opened.registry.ready).toBe(true);
    expect(opened.registry.model(model)).toBe(before);
    expect(instances(opened)).toEqual([1]);
    await change(opened, text(100, 3));
    expect(instances(opened)).toEqual([3]);
  });
});

describe("with explicit control, a reloaded model", () => {
  const config = tinyConfig({ extra: "" });
  const override = JSON.stringify({
    name: model,
    platform: "onnxruntime_onnx",
    max_batch_size: 4,
    input: [{ name: "image", data_type: "TYPE_FP32", dims: [3, 224, 224] }],
    output: [{ name: "embedding", data_type: "TYPE_FP32", dims: [512] }],
  });
  const openExplicit = () =>
    open(
      { [`${model}/config.pbtxt`]: config },
      { "model-control-mode": "explicit", "load-model": [model] },
    );
  const most = ({ registry }: Opened) => registry.model(model).config.max_batch_size;

  test("keeps its override while its files are unchanged", async () => {
    const opened = await openExplicit();
    await opened.registry.load(model, override);
    await opened.registry.load(model);
    expect(most(opened)).toBe(4);
  });

  test("rereads its files after they changed", async () => {
    const opened = await openExplicit();
    await opened.registry.load(model, override);
    const file = join(opened.repository.path, model, "config.pbtxt");
    await writeFile(file, config.replace("size: 32", "size: 16"));
    await opened.registry.load(model);
    expect(most(opened)).toBe(16);
  });

  test("rereads its files after an unload", async () => {
    const opened = await openExplicit();
    await opened.registry.load(model, override);
    await opened.registry.unload(model);
    await opened.registry.load(model);
    expect(most(opened)).toBe(32);
  });
});
