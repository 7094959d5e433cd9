import { expect, test } from "vitest";
import { aboveCeiling, ceilingImagesPerSecond } from "./roofline.ts";

const rtx4080 = { shown: "1 × rtx-4080", count: 1, fp16DenseTflops: 194.9 };

test("the ceiling is the device's peak over 8.82 GFLOP an image", () => {
  expect(ceilingImagesPerSecond(rtx4080)).toBeCloseTo(194.9e12 / 8.82e9, 3);
  expect(ceilingImagesPerSecond({ ...rtx4080, count: 4 })).toBeCloseTo((4 * 194.9e12) / 8.82e9, 3);
});

test("a figure above it is named, and one below it is not", () => {
  const cells = [
    { id: "onnx-http b32 c8", imagesPerSecond: 22_000 },
    { id: "trt-http b32 c8", imagesPerSecond: 23_000 },
  ];
  expect(aboveCeiling(cells, rtx4080)).toEqual([
    "trt-http b32 c8: 23000 images/s are more than 1 × rtx-4080 can compute, at most 22098 (194.9 TFLOPS each, 8.8 GFLOP an image): the measurement is wrong",
  ]);
});
