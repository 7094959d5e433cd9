import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { chooseForm } from "./choose-form.ts";
import { compareModels, embedWith, syntheticImages } from "./compare-models.ts";
import { type FormOptions, modelForms } from "./model-form.ts";
import { readOnnx } from "./onnx-reader.ts";
import type { OnnxModel } from "./onnx-writer.ts";
import { normalPieces } from "./random-weights.ts";
import { recogniseTower } from "./recognise-tower.ts";
import { exportedTower } from "./test-exported-tower.ts";
import { tinyModel, writeModel } from "./test-model.ts";
import { imageTower, profiles } from "./vision-transformer.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-form-"));
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

const images = syntheticImages(3);

/** How a form of a file compares to the file. */
async function agreement(file: string, { model }: { readonly model: OnnxModel }) {
  return compareModels(await embedWith(file, images), await embedWith(await write(model), images));
}

/** The first form that computes what the file computes, compared on other images than it was chosen by. */
async function chosen(file: string, options: Partial<FormOptions> = {}) {
  const { form } = await chooseForm(
    file,
    { operators: "onnxruntime", precision: "fp32", ...options },
    write,
  );
  return { parts: form.parts, ...(await agreement(file, form)) };
}

const sources: readonly [string, () => Promise<string>][] = [
  ["the generated model", tinyModel],
  ["a graph as PyTorch exports it", () => write(exportedTower())],
];

describe.each(sources)("%s", (_name, source) => {
  test.each(["onnxruntime", "portable"] as const)(
    "has an exact form of %s operators that takes pixels and computes the class token last",
    async (operators) => {
      const { parts, minCosine, maxDifference } = await chosen(await source(), { operators });
      expect(parts).toEqual(
        expect.arrayContaining(["uint8-input", "folded-normalisation", "class-token-last"]),
      );
      expect(minCosine).toBeGreaterThan(0.999999);
      expect(maxDifference).toBeLessThan(5e-6);
    },
  );

  test("has an int8 form with a cosine of 0.999 to it", async () => {
    const { parts, minCosine, maxDifference } = await chosen(await source(), { precision: "int8" });
    expect(parts).toContain("int8");
    expect(minCosine).toBeGreaterThan(0.999);
    // it is not the float32 form
    expect(maxDifference).toBeGreaterThan(1e-4);
  });
});

test("unlike images have unlike embeddings, so that an error would be seen", async () => {
  const [a, b, c] = (await embedWith(await tinyModel(), images)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  expect(compareModels([a, b, c], [b, c, a]).meanCosine).toBeLessThan(0.95);
});

test("the portable form has ONNX's own operators only", async () => {
  const [form] = modelForms(await tinyModel(), { operators: "portable", precision: "fp32" });
  expect(new Set(form?.model.nodes.map(({ domain }) => domain ?? ""))).toEqual(new Set([""]));
  expect(form?.model.otherOpsets).toBeUndefined();
});

test("the last block makes no keys and values of all tokens", async () => {
  const weightsOf = async (precision: FormOptions["precision"]) => {
    const [form] = modelForms(await tinyModel(), { operators: "onnxruntime", precision });
    return form!.model.initializers.map(({ name, dims }) => `${name} ${dims.join(" x ")}`);
  };
  const last = `blocks.${profiles.tiny.layers - 1}.attn`;
  const { width, heads } = profiles.tiny;
  const weights = await weightsOf("fp32");
  expect(weights).toContain(`${last}.key.by_head ${heads} x ${width / heads} x ${width}`);
  expect(weights).toContain(`${last}.value.by_head ${heads} x ${width} x ${width / heads}`);
  const ofAllTokens = expect.stringMatching(`^${last}\\.(key|value)\\.weight`);
  expect(weights).not.toContainEqual(ofAllTokens);
  expect(await weightsOf("int8")).toContainEqual(ofAllTokens);
});

test("two files that say the same in other words have the same form", async () => {
  const { tower } = recogniseTower(readOnnx(await write(exportedTower()))) as {
    tower: { width: number; heads: readonly number[]; blocks: readonly unknown[] };
  };
  expect(tower.width).toBe(32);
  expect(tower.heads[0]).toBe(4);
  expect(tower.blocks).toHaveLength(2);
});

test("biases of values end up in the output's, of matrices that are read in several pieces", async () => {
  const sizes = { ...profiles.tiny, width: 576, heads: 9, layers: 2, mlpWidth: 64 };
  const model = imageTower(sizes, (name, dims, initial) => {
    const count = dims.reduce((product, dim) => product * dim, 1);
    const deviation = "value" in initial ? 0.3 : initial.deviation;
    return normalPieces(3, name, count, deviation);
  });
  const { parts, maxDifference } = await chosen(await write(model));
  expect(parts).toContain("class-token-last");
  expect(maxDifference).toBeLessThan(5e-6);
});

test("an MLP with quick GELU, as OpenAI's weights have it, is recognised", async () => {
  const file = await write(exportedTower({ activation: "sigmoid" }));
  const { parts, maxDifference } = await chosen(file);
  expect(parts).toContain("class-token-last");
  expect(maxDifference).toBeLessThan(5e-6);
});

test("a graph that is not recognised gets the input of pixels only", async () => {
  const file = await write(exportedTower({ activation: "tanh" }));
  const { parts, maxDifference } = await chosen(file);
  expect(parts).toEqual(["uint8-input", "folded-normalisation"]);
  expect(maxDifference).toBeLessThan(5e-6);
});

test("the normalisation stays out of a convolution that pads", async () => {
  const file = await write(exportedTower({ padding: 5 }));
  const { parts, maxDifference } = await chosen(file);
  expect(parts).toEqual(["uint8-input"]);
  expect(maxDifference).toBeLessThan(5e-6);
});

test("fails on an int8 form of a graph that is not recognised", async () => {
  const file = await write(exportedTower({ activation: "tanh" }));
  await expect(chosen(file, { precision: "int8" })).rejects.toThrow(
    `${file}: no form of precision int8 agrees with it: it was not recognised as an image tower`,
  );
});

test("a form that computes something else is not chosen", async () => {
  const file = await write(exportedTower());
  const [first] = modelForms(file, { operators: "portable", precision: "fp32" });
  const other = {
    ...first!.model,
    initializers: first!.model.initializers.map((item) =>
      item.name === "positions"
        ? { ...item, data: () => [new Uint8Array(4 * 32 * (7 * 7 + 1))] }
        : item,
    ),
  };
  await expect(
    chooseForm(file, { operators: "portable", precision: "fp32" }, () => write(other)),
  ).rejects.toThrow(/no form of precision fp32 agrees with it: cosine/);
});
