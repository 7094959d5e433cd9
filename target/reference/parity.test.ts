import { expect, test } from "vitest";
import { compareWith, differenceLimit, judgeParity } from "./parity.ts";

/** Difference of ONNX Runtime's CUDA provider in TensorFloat-32, measured on an H100. */
const tensorFloat32 = { image: "photo", cosine: 0.999_999, relativeDifference: 0.001_397 };

test("a GPU that multiplies in TensorFloat-32 agrees with the reference", () => {
  const limit = differenceLimit("deployed", "onnx-grpc");
  expect(judgeParity([tensorFloat32], limit).passed).toBe(true);
  expect(judgeParity([{ ...tensorFloat32, relativeDifference: 0.006 }], limit)).toMatchObject({
    passed: false,
    message:
      "photo differ from the local reference: cosine 0.999999, relative difference 0.60 %; must be ≥ 0.999 and ≤ 0.50 %",
  });
});

test("a simulation computes FP32, and the same difference fails", () => {
  expect(judgeParity([tensorFloat32], differenceLimit("simulation", "onnx-grpc")).passed).toBe(
    false,
  );
});

test.each([
  ["deployed", "trt-grpc"],
  ["addresses", "pytorch-http"],
] as const)("only directions are compared with %s %s, which round to FP16", (target, endpoint) => {
  expect(differenceLimit(target, endpoint)).toBeUndefined();
  const rounded = { ...tensorFloat32, relativeDifference: 0.02 };
  expect(judgeParity([rounded], undefined).passed).toBe(true);
  expect(judgeParity([{ ...rounded, cosine: 0.99 }], undefined).passed).toBe(false);
});

test("an embedding of another width is not compared", () => {
  const reference = { name: "a.jpg", embedding: new Float32Array(512).fill(1) };
  expect(() => compareWith(reference, new Float32Array(7).fill(1))).toThrow(
    "a.jpg: must have 512 values, got 7",
  );
});
