import { expect, test } from "vitest";
import { defaultModels } from "../../contract/models/index.ts";
import {
  embedMemoryMiB,
  heapMiB,
  limitsOf,
  memoryLimitFindings,
  tritonMemoryMiB,
} from "./container-limits.ts";

const gateway = {
  models: [],
  onGpu: false,
  queueBytes: 256 * 2 ** 20,
  pixelsInFlight: 320_000_000,
  instances: 1,
  tmpMiB: 64,
};
const triton = {
  models: defaultModels,
  instances: 1,
  gpus: 1,
  compiles: false,
  decodes: false,
  requestBytes: 128 * 2 ** 20,
  sharedMiB: 1_280,
};

test("the memory limit of an embed server grows with its queue and its models", () => {
  expect(embedMemoryMiB(gateway)).toBe(3_328);
  expect(embedMemoryMiB({ ...gateway, queueBytes: 2 ** 30 })).toBe(3_328 + 768);
  const own = embedMemoryMiB({ ...gateway, models: defaultModels });
  expect(own).toBeGreaterThan(3_328 + 2 * 350);
  expect(embedMemoryMiB({ ...gateway, models: defaultModels, onGpu: true })).toBe(own + 1_024);
});

test("the memory limit of a Triton server grows with GPUs, payloads, engine builds and decoders", () => {
  const limit = tritonMemoryMiB(triton);
  expect(limit).toBe(4_096);
  expect(tritonMemoryMiB({ ...triton, gpus: 2 })).toBe(limit + 1_024);
  expect(tritonMemoryMiB({ ...triton, requestBytes: 256 * 2 ** 20 })).toBe(limit + 512);
  expect(tritonMemoryMiB({ ...triton, compiles: true, decodes: true })).toBe(limit + 3_072);
  // the served version, the added one under two names, and those that stay
  const [two, three] = [undefined, 1].map((versions) => tritonMemoryMiB({ ...triton, versions }));
  expect(three! - two!).toBeGreaterThan(0);
  expect(tritonMemoryMiB({ ...triton, versions: 3 })).toBeGreaterThan(three!);
  const onCpu = { ...triton, gpus: 0 };
  expect(tritonMemoryMiB({ ...onCpu, instances: 4 })).toBeGreaterThan(tritonMemoryMiB(onCpu));
});

test("a container has no swap, shares of the CPU, and leaves a core to the host", () => {
  expect(limitsOf("embed", 512, undefined)).toEqual({
    ...{ memory: 512, memorySwap: 512 },
    cpuShares: 1_024,
  });
  expect(limitsOf("triton", 512, 8).cpus).toBe("7.0");
  expect(limitsOf("triton", 512, 1).cpus).toBe("1.0");
});

test("fails on a memory limit that the weights or the heap exceed", () => {
  expect(memoryLimitFindings(300, defaultModels, heapMiB)).toEqual([
    "memoryMiB must be at least 1536, got 300",
  ]);
  expect(memoryLimitFindings(1_536, defaultModels, heapMiB)).toEqual([]);
});
