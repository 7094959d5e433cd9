import { afterEach, beforeEach, expect, test } from "vitest";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelControlFlags } from "../../contract/test-model-control.ts";
import { modelControlHeader, type ResolvedTritonFlags } from "../../contract/triton-flags.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { controlQueueDelay } from "./queue-delay.ts";

const fp32Model = tritonModel(defaultModel, "fp32");

const model = fp32Model.name;
const closers: (() => unknown)[] = [];
let repository: TestRepository;
beforeEach(async () => {
  const { text } = deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 1);
  repository = await testRepository({ [`${model}/configs/deployed.pbtxt`]: text });
  closers.push(() => repository.remove());
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Starts a Triton server that serves the model and returns its URL. */
async function start(flags: Partial<ResolvedTritonFlags> = {}): Promise<string> {
  const server = await startTritonEmulator(
    repository.flags({
      "model-config-name": "deployed",
      "model-control-mode": "explicit",
      "load-model": [model],
      "allow-metrics": false,
      ...flags,
    }),
    { log: () => {} },
  );
  closers.push(() => server.stop());
  return `http://127.0.0.1:${server.ports.http}`;
}

async function control(url: string) {
  const opened = await controlQueueDelay(url, model);
  closers.push(() => opened.close());
  return opened;
}

async function configOf(url: string) {
  const answer = await fetch(`${url}/v2/models/${model}/config`);
  return (await answer.json()) as { readonly dynamic_batching: Record<string, unknown> };
}
const delayOf = async (url: string) =>
  (await configOf(url)).dynamic_batching.max_queue_delay_microseconds;

test("only the queue delay changes, and the original configuration is restored", async () => {
  const url = await start();
  const before = await configOf(url);
  const delay = await control(url);
  expect(delay.originalUs).toBe(fp32Model.maxQueueDelayMicroseconds);
  await delay.set(1_234);
  expect(await configOf(url)).toEqual({
    ...before,
    dynamic_batching: { ...before.dynamic_batching, max_queue_delay_microseconds: 1_234 },
  });
  await delay.restore();
  expect(await configOf(url)).toEqual(before);
});

test("the served configuration is restored even if the repository contains another delay", async () => {
  const url = await start();
  const first = await control(url);
  await first.set(777);
  const second = await control(url);
  await second.set(0);
  await second.restore();
  expect(await delayOf(url)).toBe(777);
});

test("fails if the server does not allow model control", async () => {
  const url = await start({ "model-control-mode": "none" });
  await expect(controlQueueDelay(url, model)).rejects.toThrow(
    `${url} does not allow model control: its --model-control-mode must be explicit to change the queue delay of ${model}`,
  );
});

test("a Triton server that requires a key changes its queue delay only with the key", async () => {
  const url = await start(modelControlFlags("a-key"));
  await expect(controlQueueDelay(url, model)).rejects.toThrow(
    `${url} requires a key to change the queue delay of ${model}: This API is restricted, expecting header '${modelControlHeader}'`,
  );
  const header = { name: modelControlHeader, value: "a-key" };
  const opened = await controlQueueDelay(url, model, { header });
  closers.push(() => opened.close());
  await opened.set(1_234);
  expect(await delayOf(url)).toBe(1_234);
});

test("fails if the model does not exist", async () => {
  const url = await start();
  await expect(controlQueueDelay(url, "other")).rejects.toThrow(
    `other at ${url}: its configuration cannot be read`,
  );
});
