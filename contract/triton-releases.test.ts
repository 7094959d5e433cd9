import { expect, test } from "vitest";
import {
  defaultTritonImage,
  firstStronglyTyped,
  tritonReleaseOf,
  tritonReleases,
  versionsOf,
} from "./triton-releases.ts";

test("lists releases in ascending order, each with a source", () => {
  const names = tritonReleases.map(({ release }) => release);
  expect(names).toEqual([...new Set(names)].sort());
  expect(tritonReleases.filter(({ sources }) => sources.length === 0)).toEqual([]);
});

test("finds the release in a tag with and without a digest", () => {
  expect(tritonReleaseOf("nvcr.io/nvidia/tritonserver:26.05-py3")).toBe("26.05");
  expect(tritonReleaseOf(`tritonserver:26.05-py3@sha256:${"0".repeat(64)}`)).toBe("26.05");
  expect(tritonReleaseOf(`tritonserver@sha256:${"0".repeat(64)}`)).toBeUndefined();
  expect(tritonReleaseOf("registry:5000/triton:1.0")).toBeUndefined();
});

test("returns the row before a release without one", () => {
  expect(versionsOf("tritonserver:25.11-py3")?.release).toBe("25.08");
  expect(versionsOf("tritonserver:27.01-py3")?.release).toBe("26.10");
  expect(versionsOf("tritonserver:19.01-py3")).toBeUndefined();
});

test("TensorRT is strongly typed from 26.06 on, with the default image", () => {
  expect(firstStronglyTyped).toBe("26.06");
  expect(defaultTritonImage).toBe("nvcr.io/nvidia/tritonserver:26.07-py3");
});
