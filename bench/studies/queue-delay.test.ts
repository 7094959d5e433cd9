import { expect, onTestFinished, test } from "vitest";
import { modelControlFlags } from "../../contract/test-model-control.ts";
import { modelControlHeader } from "../../contract/triton-flags.ts";
import { controlQueueDelay } from "./queue-delay.ts";
import { configOf, delayOf, queueModel, startQueueServer } from "./test-queue-delay.ts";

const { name: model, maxQueueDelayMicroseconds } = queueModel;

async function control(url: string) {
  const opened = await controlQueueDelay(url, model);
  onTestFinished(() => opened.close());
  return opened;
}

test("only the queue delay changes, and the original configuration is restored", async () => {
  const url = await startQueueServer();
  const before = await configOf(url);
  const delay = await control(url);
  expect(delay.originalUs).toBe(maxQueueDelayMicroseconds);
  await delay.set(1_234);
  expect(await configOf(url)).toEqual({
    ...before,
    dynamic_batching: { ...before.dynamic_batching, max_queue_delay_microseconds: 1_234 },
  });
  await delay.restore();
  expect(await configOf(url)).toEqual(before);
});

test("the served configuration is restored even if the repository contains another delay", async () => {
  const url = await startQueueServer();
  const first = await control(url);
  await first.set(777);
  const second = await control(url);
  await second.set(0);
  await second.restore();
  expect(await delayOf(url)).toBe(777);
});

test("fails if the server does not allow model control", async () => {
  const url = await startQueueServer({ "model-control-mode": "none" });
  await expect(controlQueueDelay(url, model)).rejects.toThrow(
    `${url} does not allow model control: its --model-control-mode must be explicit to change the queue delay of ${model}`,
  );
});

test("a Triton server that requires a key changes its queue delay only with the key", async () => {
  const url = await startQueueServer(modelControlFlags("a-key"));
  await expect(controlQueueDelay(url, model)).rejects.toThrow(
    `${url} requires a key to change the queue delay of ${model}: This API is restricted, expecting header '${modelControlHeader}'`,
  );
  const header = { name: modelControlHeader, value: "a-key" };
  const opened = await controlQueueDelay(url, model, { header });
  onTestFinished(() => opened.close());
  await opened.set(1_234);
  expect(await delayOf(url)).toBe(1_234);
});

test("fails if the model does not exist", async () => {
  const url = await startQueueServer();
  await expect(controlQueueDelay(url, "other")).rejects.toThrow(
    `other at ${url}: its configuration cannot be read`,
  );
});
