import { expect, test } from "vitest";
import { gpuRequest } from "./gpu-request.ts";

test("requests one GPU by its index", () => {
  expect(gpuRequest([2])).toEqual({
    gpus: "device=2",
    env: { NVIDIA_VISIBLE_DEVICES: "2", NVIDIA_DRIVER_CAPABILITIES: "compute,utility" },
  });
});

test("requests several GPUs through NVIDIA's runtime, without `gpus`", () => {
  expect(gpuRequest([0, 1, 2, 3])).toEqual({
    runtime: "nvidia",
    env: { NVIDIA_VISIBLE_DEVICES: "0,1,2,3", NVIDIA_DRIVER_CAPABILITIES: "compute,utility" },
  });
});

test("requests nothing without GPUs", () => {
  expect(gpuRequest([])).toEqual({ env: {} });
});
