import { expect, test } from "vitest";
import { requiredDriver } from "./drivers.ts";

test.each([
  ["26.07", 13, 580],
  ["25.08", 13, 580],
  ["25.07", 12, 525],
  ["23.01", 12, 525],
  ["22.12", 11, 450],
])("Triton %s has CUDA %i and requires driver branch %i", (release, cuda, branch) => {
  const image = `nvcr.io/nvidia/tritonserver:${release}-py3`;
  expect(requiredDriver(image)).toEqual({ image, cuda, branch });
});

test("returns no driver for an image without a known release", () => {
  expect(requiredDriver("tritonserver@sha256:0")).toBeUndefined();
  expect(requiredDriver("my/triton:1.0")).toBeUndefined();
  expect(requiredDriver("nvcr.io/nvidia/tritonserver:19.01-py3")).toBeUndefined();
});
