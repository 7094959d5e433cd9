import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { chooseForm } from "./choose-form.ts";
import { compareModels, embedWith, syntheticImages } from "./compare-models.ts";
import {
  type ConvertPrecision,
  convertPrecision,
  convertPrecisions,
  halfBits,
} from "./convert-precision.ts";
import { readOnnx, tensorTypes } from "./onnx-reader.ts";
import type { OnnxModel } from "./onnx-writer.ts";
import { isStandard } from "./standard-model.ts";
import { exportedTower } from "./test-exported-tower.ts";
import { tinyModel, writeModel } from "./test-model.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-convert-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

let count = 0;
async function write(model: OnnxModel): Promise<string> {
  count += 1;
  const file = join(folder, `${count}.onnx`);
  await writeModel(file, model);
  return file;
}

/** The variant with the first number of attention heads. */
async function converted(source: string, precision: ConvertPrecision): Promise<string> {
  for (const { model } of convertPrecision(readOnnx(source), precision)) return write(model);
  throw new Error("there is none");
}

const images = syntheticImages(3);

const sources: readonly [string, () => Promise<string>][] = [
  ["the generated model", tinyModel],
  ["a graph as PyTorch exports it", () => write(exportedTower())],
];

describe.each(sources)("%s", (_name, source) => {
  test.each([
    ["fp16", 0.9999],
    ["int8", 0.998],
  ] as const)("has an %s variant with a cosine of %d to it", async (precision, least) => {
    const original = await source();
    const variant = await converted(original, precision);
    const { minCosine } = compareModels(
      await embedWith(original, images),
      await embedWith(variant, images),
    );
    expect(minCosine).toBeGreaterThan(least);
    expect(minCosine).toBeLessThan(1);
  });

  test.each(convertPrecisions)("keeps its input and output in %s", async (precision) => {
    expect(isStandard(readOnnx(await converted(await source(), precision)))).toBe(true);
  });
});

test("fp16 keeps no weight in float32", async () => {
  const { initializers } = readOnnx(await converted(await tinyModel(), "fp16"));
  const types = [...initializers.values()].map(({ dataType }) => dataType);
  expect(types).toContain(tensorTypes.half);
  expect(types).not.toContain(tensorTypes.float);
});

test("int8 keeps no matrix in float32, and no weight twice", async () => {
  const variant = readOnnx(await converted(await write(exportedTower()), "int8"));
  const products = variant.nodes.filter(({ op }) => op === "MatMul" || op === "Gemm");
  expect(
    products.flatMap(({ inputs }) => inputs.filter((name) => variant.initializers.has(name))),
  ).toEqual([]);
  const unused = [...variant.initializers.keys()].filter(
    (name) => !variant.nodes.some(({ inputs }) => inputs.includes(name)),
  );
  expect(unused).toEqual([]);
});

test("an fp16 file has a form that takes pixels", async () => {
  const half = await converted(await tinyModel(), "fp16");
  const { form } = await chooseForm(half, { operators: "portable", precision: "fp32" }, write);
  expect(form.parts).toContain("uint8-input");
});

test("fp16 of a graph that is no image tower fails with one line", async () => {
  const source = await write(exportedTower());
  const file = { ...readOnnx(source), nodes: [] };
  expect(() => [...convertPrecision(file, "fp16")]).toThrow(
    /^\S+\.onnx: its image tower is not recognised: /,
  );
});

test("int8 of a graph without a matrix of weights fails with one line", async () => {
  const source = await write(exportedTower());
  const file = { ...readOnnx(source), nodes: [] };
  expect(() => [...convertPrecision(file, "int8")]).toThrow(
    /^\S+\.onnx: has no product with a matrix of weights$/,
  );
});

test.each([
  [0, 0x0000],
  [-0, 0x8000],
  [1, 0x3c00],
  [-2, 0xc000],
  [65504, 0x7bff],
  [65519.996, 0x7bff],
  [65520, 0x7c00],
  [-1e9, 0xfc00],
  [Number.POSITIVE_INFINITY, 0x7c00],
  [Number.NaN, 0x7e00],
  // halfway between two numbers: to the even one
  [1 + 2 ** -11, 0x3c00],
  [1 + 3 * 2 ** -11, 0x3c02],
  [1 + 2 ** -11 + 2 ** -20, 0x3c01],
  // the smallest normal one, and what lies below
  [2 ** -14, 0x0400],
  [2 ** -14 - 2 ** -26, 0x0400],
  [3 * 2 ** -24, 0x0003],
  [2 ** -25, 0x0000],
  [1.5 * 2 ** -24, 0x0002],
  [2.5 * 2 ** -24, 0x0002],
  [-(2 ** -24), 0x8001],
])("%d in half precision has the bits %i", (value, bits) => {
  expect([...halfBits(Float32Array.of(value))]).toEqual([bits]);
});
