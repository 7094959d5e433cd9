import { expect, test } from "vitest";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import type { TensorSpec } from "../../contract/tensor.ts";
import { requireFit, tensorMismatch, towerTensors } from "./tower-fit.ts";

const tensor = (name: string, dataType: TensorSpec["dataType"], ...dims: number[]) => ({
  name,
  dataType,
  dims,
});
const expected = towerTensors(openclipVitB32, "image");
const input = tensor("image", "FP32", 3, 224, 224);
const output = tensor("embedding", "FP32", 512);

test.each([
  [input, output],
  [tensor("image", "UINT8", 224, 224, 3), output],
  [tensor("image", "FP32", 3, -1, -1), tensor("embedding", "FP32", -1)],
])("accepts %o", (...[found, result]) => {
  expect(tensorMismatch(expected, { inputs: [found], outputs: [result] })).toBeUndefined();
});

test("accepts token ids of the text tower", () => {
  const found = { inputs: [tensor("text", "INT64", 77)], outputs: [output] };
  expect(tensorMismatch(towerTensors(openclipVitB32, "text"), found)).toBeUndefined();
});

test.each([
  [
    [tensor("image", "FP32", 3, 256, 256)],
    [output],
    "input 'image' must be FP32 [3, 224, 224] or UINT8 [224, 224, 3], got FP32 [3, 256, 256]",
  ],
  [
    [tensor("x", "FP32", 4)],
    [output],
    "must have the input 'image' FP32 [3, 224, 224] or UINT8 [224, 224, 3], got 'x' FP32 [4]",
  ],
  [
    [input, tensor("mask", "INT64", 77)],
    [output],
    "must have no other input than 'image', got 'mask' INT64 [77]",
  ],
  [
    [input],
    [tensor("embedding", "FP32", 384)],
    "output 'embedding' must be FP32 [512], got FP32 [384]",
  ],
])("fails with the tensor, its expected and its found shape: %o", (inputs, outputs, message) => {
  expect(tensorMismatch(expected, { inputs, outputs })).toBe(message);
});

test("fails with the path of the file", () => {
  const found = { inputs: [input], outputs: [tensor("y", "FP32", 512)] };
  expect(() => requireFit("a.onnx", expected, found)).toThrow(
    "[model] a.onnx: must have the output 'embedding' FP32 [512], got 'y' FP32 [512]",
  );
});

test("fails if the model has no such tower", () => {
  expect(() => towerTensors(dinov2Small, "text")).toThrow("dinov2-small has no text tower");
});
