import { statSync } from "node:fs";
import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { randomImageTower } from "../generate/architectures.ts";
import { tinyModel } from "../generate/test-model.ts";
import { readFloats, readIntegers, readOnnx, tensorTypes } from "./reader.ts";
import { writeWithExternalData } from "./test-external-data.ts";
import { onnxChunks } from "./writer.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-reader-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

const model = randomImageTower(openclipVitB32, "tiny", 1).model;

test("reads a written model", async () => {
  const file = readOnnx(await tinyModel());
  expect(file.opsets).toEqual(new Map([["", 17]]));
  expect(file.inputs).toEqual([
    { name: "image", dataType: tensorTypes.float, dims: ["batch", 3, 224, 224] },
  ]);
  expect(file.outputs.map(({ name }) => name)).toEqual(["embedding"]);
  expect(file.nodes.map(({ op, inputs, outputs }) => ({ op, inputs, outputs }))).toEqual(
    model.nodes.map(({ op, inputs, outputs }) => ({ op, inputs, outputs })),
  );
  const norm = file.nodes.find(({ op }) => op === "LayerNormalization");
  expect(norm?.attributes.get("axis")?.int).toBe(-1);
  expect(norm?.attributes.get("epsilon")?.float).toBeCloseTo(1e-5);
  expect(file.nodes.find(({ op }) => op === "Transpose")?.attributes.get("perm")?.ints).toEqual([
    0, 2, 1,
  ]);
});

test("reads the values of tensors", async () => {
  const file = readOnnx(await tinyModel());
  for (const name of ["conv1.weight", "resblocks.1.mlp.c_proj.bias"]) {
    const written = model.initializers.find((item) => item.name === name)!;
    const bytes = Buffer.concat(Array.from(written.data(), (piece) => Buffer.from(piece)));
    const read = Buffer.from(readFloats(file.initializers.get(name)!).buffer);
    expect(read.equals(bytes), name).toBe(true);
  }
  expect(readIntegers(file.initializers.get("patches.pads")!)).toEqual([0, 1, 0, 0, 0, 0]);
});

test("reads weights in an external data file", async () => {
  await writeWithExternalData(model, join(folder, "split.onnx"));
  const tensor = readOnnx(join(folder, "split.onnx")).initializers.get("conv1.weight")!;
  expect(tensor.externalFile).toBe(join(folder, "weights.bin"));
  expect(readFloats(tensor)).toEqual(
    readFloats(readOnnx(await tinyModel()).initializers.get("conv1.weight")!),
  );

  await truncate(join(folder, "weights.bin"), 1_000);
  const file = join(folder, "split.onnx");
  expect(() => readOnnx(file)).toThrow(`${file}: its external data 'weights.bin' is truncated`);
  await rm(join(folder, "weights.bin"));
  expect(() => readOnnx(file)).toThrow(`${file}: its external data 'weights.bin' does not exist`);
});

test("fails on external data outside the model's folder", async () => {
  const file = join(folder, "outside.onnx");
  await writeWithExternalData(model, file, "../secret");
  expect(() => readOnnx(file)).toThrow(
    "must have its external data in its folder, got '../secret'",
  );
});

test.each([10, 1_000, 30_000, 900_000])(
  "fails on a file that is cut after %i bytes",
  async (bytes) => {
    const file = join(folder, "cut.onnx");
    await writeFile(file, (await readFile(await tinyModel())).subarray(0, bytes));
    expect(() => readOnnx(file)).toThrow(
      new Error(
        `${file}: is not a complete ONNX file, got ${statSync(file).size} bytes: copy or download it again`,
      ),
    );
  },
);

test.each([
  ["nothing", Buffer.alloc(0)],
  ["text", Buffer.from("real weights\n")],
  ["JSON", Buffer.from("{}")],
  ["zeros", Buffer.alloc(100)],
  ["a JPEG", Buffer.from("ffd8ffe000104a46494600010101", "hex")],
])("fails on a file of %s", async (_name, bytes) => {
  const file = join(folder, "other.onnx");
  await writeFile(file, bytes);
  expect(() => readOnnx(file)).toThrow(
    new Error(
      `${file}: is not a complete ONNX file, got ${statSync(file).size} bytes: copy or download it again`,
    ),
  );
});

test("fails on a file that does not exist, and on a folder", () => {
  const missing = join(folder, "missing.onnx");
  expect(() => readOnnx(missing)).toThrow(`model file '${missing}' does not exist`);
  expect(() => readOnnx(folder)).toThrow(`model file '${folder}' is not a file`);
});

test("a mutated file is read or rejected in one line, and never hangs", async () => {
  const bytes = Buffer.concat(Array.from(onnxChunks(model), (chunk) => Buffer.from(chunk)));
  const file = join(folder, "mutated.onnx");
  let seed = 1;
  const random = (below: number) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return seed % below;
  };
  for (let i = 0; i < 150; i++) {
    const mutated = Buffer.from(bytes);
    for (let change = 0; change < 5; change++) mutated[random(40_000)] = random(256);
    await writeFile(file, mutated);
    try {
      readOnnx(file);
    } catch (error) {
      expect((error as Error).message).toMatch(/^[^\n]*mutated\.onnx: [^\n]+$/);
    }
  }
});
