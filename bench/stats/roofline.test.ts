import { expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { aboveCeiling, ceilingImagesPerSecond } from "./roofline.ts";

const tower = imageTowerOf(openclipVitB32);
const rtx4080 = { name: "rtx-4080", count: 1, fp16DenseTflops: 194.9 };

test("the ceiling is the device's peak divided by 8.82 GFLOP per image", () => {
  expect(ceilingImagesPerSecond(rtx4080, tower)).toBeCloseTo(194.9e12 / 8.82e9, 3);
  expect(ceilingImagesPerSecond({ ...rtx4080, count: 4 }, tower)).toBeCloseTo(
    (4 * 194.9e12) / 8.82e9,
    3,
  );
});

const cell = { environment: "single-gpu", conditions: {}, imagesPerSecond: 23_000 };

test("only figures above the ceiling are reported", () => {
  const cells = [
    { ...cell, id: "onnx-http b32 c8", imagesPerSecond: 22_000 },
    { ...cell, id: "trt-http b32 c8" },
  ];
  expect(aboveCeiling(cells, new Map([["single-gpu", rtx4080]]), tower)).toEqual([
    "trt-http b32 c8: 23000 images/s are more than 1 × rtx-4080 can compute, at most 22098 (194.9 TFLOPS each, 8.8 GFLOP per image): the measurement is wrong",
  ]);
});

test("the ceiling of a scaling study follows its number of GPUs", () => {
  const devices = new Map([["single-gpu", { ...rtx4080, count: 4 }]]);
  const cells = [1, 2].map((gpus) => ({ ...cell, id: `${gpus}`, conditions: { gpus } }));
  expect(aboveCeiling(cells, devices, tower).map((line) => line.slice(0, 2))).toEqual(["1:"]);
});

test("load points on an unknown device are not checked", () => {
  expect(aboveCeiling([{ ...cell, id: "x", imagesPerSecond: 1e9 }], new Map(), tower)).toEqual([]);
});
