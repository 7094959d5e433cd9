import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { catalogueSpecs, defaultModel } from "../../contract/models/index.ts";
import { mobileclip2S0 } from "../../contract/models/mobileclip2-s0.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { siglip2Base224 } from "../../contract/models/siglip2-base-224.ts";
import { testModel, testSentencePiece } from "../../inference/text/test-sentencepiece.ts";
import { generateModel } from "../generate/generate.ts";
import { normalPieces } from "../generate/random-weights.ts";
import { tinyModel } from "../generate/test-model.ts";
import { exportedTower } from "../graph/test-exported-tower.ts";
import { writeWithExternalData } from "../onnx/test-external-data.ts";
import {
  int64Initializer,
  type OnnxInitializer,
  type OnnxNode,
  onnxChunks,
  scalarInitializer,
} from "../onnx/writer.ts";
import { type Counterpart, checkModel, type ModelReport } from "./check-model.ts";
import { syntheticImages } from "./compare-models.ts";
import { openTower } from "./run-model.ts";
import { sampleTokenIds } from "./token-samples.ts";

const inputs = syntheticImages(32, imageTowerOf(defaultModel).input.size);
const limit = 0.001;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-check-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

interface SmallModel {
  readonly input?: string;
  readonly output?: string;
  readonly batch?: number | "batch";
  readonly width?: number;
  /** Nodes from `mixed` to `embedding`. */
  readonly end?: readonly Omit<OnnxNode, "name">[];
  readonly more?: readonly OnnxInitializer[];
}

/** Writes a fast image model that multiplies the mean colour. */
async function smallModel(name: string, options: SmallModel = {}): Promise<string> {
  const { input = "image", output = "embedding", batch = "batch", width = 512 } = options;
  const end = options.end ?? [{ op: "Identity", inputs: ["mixed"], outputs: [output] }];
  const model = {
    producer: "test",
    opset: 17,
    irVersion: 8,
    graphName: "small",
    inputs: [{ name: input, dims: [batch, 3, 224, 224] }],
    outputs: [{ name: output, dims: [batch, width] }],
    nodes: [
      { op: "GlobalAveragePool", inputs: [input], outputs: ["pooled"] },
      { op: "Reshape", inputs: ["pooled", "shape"], outputs: ["mean"] },
      { op: "MatMul", inputs: ["mean", "weights"], outputs: ["mixed"] },
      ...end,
    ].map((node, index) => ({ ...node, name: `node${index}` })),
    initializers: [
      int64Initializer("shape", [0, 3]),
      {
        name: "weights",
        dataType: "FLOAT" as const,
        dims: [3, width],
        data: () => normalPieces(1, "weights", 3 * width, 1),
      },
      ...(options.more ?? []),
    ],
  };
  const path = join(folder, `${name}.onnx`);
  await writeFile(
    path,
    [...onnxChunks(model)].map((chunk) => Uint8Array.from(chunk)),
  );
  return path;
}

function fileOf(path: string): Counterpart {
  return { name: "the other", open: () => openTower(openclipVitB32, "image", path), batchSize: 1 };
}

const failed = ({ findings }: ModelReport) =>
  findings.filter(({ ok }) => !ok).map(({ message }) => message);

test("a model of this project passes all checks", async () => {
  const path = await tinyModel();
  const report = await checkModel(openclipVitB32, "image", path, {
    inputs,
    limit,
    against: [fileOf(path)],
  });
  expect(failed(report)).toEqual([]);
  expect(report.ok).toBe(true);
  expect(report.findings.map(({ check }) => check)).toEqual([
    "fit",
    "finite",
    "unequal",
    "batch",
    "rows",
    "parity",
  ]);
  expect(report.structure).toMatchObject({
    irVersion: 8,
    opsets: { "ai.onnx": 17 },
    producer: "clipstack",
    inputs: [{ name: "image", dataType: "FP32", dims: ["batch", 3, 224, 224] }],
    outputs: [{ name: "embedding", dataType: "FP32", dims: ["batch", 512] }],
    dynamicBatch: true,
    fits: ["openclip_vit_b32", "openclip_vit_b32_trt"],
    tower: "image tower of 2 blocks, 48 wide, patches of 32 pixels",
  });
  expect(report.info).toMatchObject({ source: "generated", weights: "random" });
});

test("does not run a file with another input", async () => {
  const { findings, ok } = await checkModel(mobileclip2S0, "image", await tinyModel(), {
    inputs,
    limit,
  });
  expect(ok).toBe(false);
  expect(findings).toEqual([
    {
      check: "fit",
      ok: false,
      message:
        "does not fit mobileclip2-s0: input 'image' must be FP32 [3, 256, 256] or UINT8 [256, 256, 3], got FP32 [3, 224, 224]",
    },
  ]);
});

test.each(catalogueSpecs)("the tiny image tower of $name passes", async (spec) => {
  const path = await tinyModel(spec);
  const { input } = spec.towers.image!;
  const own = syntheticImages(4, input.size);
  const batching = { maximum: 4, preferred: [4] };
  const report = await checkModel({ ...spec, batching }, "image", path, { inputs: own, limit });
  expect(failed(report)).toEqual([]);
});

test("a graph that 'model optimise' keeps is described as such", async () => {
  const path = join(folder, "lite0.onnx");
  await generateModel({ spec: efficientnetLite0, profile: "full", seed: 1, file: path });
  const report = await checkModel(efficientnetLite0, "image", path, {
    inputs: syntheticImages(2, imageTowerOf(efficientnetLite0).input.size),
    limit,
  });
  expect(report.structure.tower).toBe(
    "not a vision transformer of CLIP, so 'model optimise' keeps its graph: 'embedding' is not the product of a matrix",
  );
});

describe("text towers", () => {
  const small = { batching: { maximum: 4, preferred: [4] } };
  const checkText = (spec: ModelSpec, path: string) =>
    checkModel({ ...spec, ...small }, "text", path, {
      inputs: sampleTokenIds(spec.towers.text!.input, 6),
      limit,
    });

  async function generated(spec: ModelSpec, name: string): Promise<string> {
    const file = join(folder, name, "model.onnx");
    await generateModel({ spec, modality: "text", profile: "tiny", seed: 1, file });
    return file;
  }

  test.each(["int64", "int32"] as const)("a tiny tower with %s ids passes", async (idType) => {
    const text = openclipVitB32.towers.text!;
    const spec = {
      ...openclipVitB32,
      towers: { text: { ...text, input: { ...text.input, idType } } },
    };
    const report = await checkText(spec, await generated(spec, idType));
    expect(failed(report)).toEqual([]);
    expect(report.structure.fits).toEqual(["openclip_vit_b32_text", "openclip_vit_b32_text_trt"]);
    expect(report.findings[1]?.message).toBe("6 texts give 512 finite values each");
  });

  test("the file of a SentencePiece tokenizer must lie beside the tower", async () => {
    const text = { ...siglip2Base224.towers.text!, input: testSentencePiece };
    const spec = { ...siglip2Base224, towers: { text } };
    const path = await generated(spec, "siglip");
    expect(failed(await checkText(spec, path))).toEqual([
      expect.stringMatching(/^tokenizer \S+test-sentencepiece\.model cannot be read: ENOENT/),
    ]);
    await copyFile(testModel, join(dirname(path), testSentencePiece.tokenizer.file));
    const { findings, ok } = await checkText(spec, path);
    expect(ok).toBe(true);
    expect(findings[1]).toEqual({
      check: "tokenizer",
      ok: true,
      message: "test-sentencepiece.model beside the file is the tokenizer of siglip2-base-224",
    });
  });
});

test("reports why a file of a hub does not fit", async () => {
  const path = join(folder, "published.onnx");
  const model = exportedTower({ batch: 1, unitLength: true });
  await writeFile(
    path,
    [...onnxChunks(model)].map((chunk) => Uint8Array.from(chunk)),
  );
  const report = await checkModel(openclipVitB32, "image", path, { inputs, limit });
  expect(failed(report)).toEqual([
    "does not fit openclip-vit-b32: input 'image' must have a dynamic batch dimension, got 1; " +
      "output 'embedding' must have a dynamic batch dimension, got 1",
  ]);
  // the file cannot run a batch of 32
  expect(report.findings.map(({ check }) => check)).toEqual(["fit", "finite", "unequal"]);
  expect(report.structure.tower).toContain("normalises the embedding");
});

test.each<[string, SmallModel, string | RegExp]>([
  [
    "other names",
    { input: "pixels", output: "vector" },
    "does not fit openclip-vit-b32: must have the input 'image' FP32 [3, 224, 224] or UINT8 [224, 224, 3], got 'pixels' FP32 [3, 224, 224]",
  ],
  [
    "another width",
    { width: 768 },
    "does not fit openclip-vit-b32: output 'embedding' must be FP32 [512], got FP32 [768]",
  ],
  [
    "values that are not finite",
    { end: [{ op: "Sqrt", inputs: ["mixed"], outputs: ["embedding"] }] },
    /^\d+ of 32 embeddings have values that are not finite$/,
  ],
  [
    "only zeros",
    {
      end: [{ op: "Mul", inputs: ["mixed", "zero"], outputs: ["embedding"] }],
      more: [scalarInitializer("zero", 0)],
    },
    "32 of 32 embeddings have only zeros",
  ],
  [
    "the same embedding for all images",
    {
      end: [
        { op: "Mul", inputs: ["mixed", "zero"], outputs: ["none"] },
        { op: "Add", inputs: ["none", "one"], outputs: ["embedding"] },
      ],
      more: [scalarInitializer("zero", 0), scalarInitializer("one", 1)],
    },
    "496 pairs of different images have the same embedding",
  ],
  [
    "an embedding that depends on the other images of the batch",
    {
      end: [
        { op: "ReduceMean", inputs: ["mixed"], outputs: ["others"], attributes: { axes: [0] } },
        { op: "Add", inputs: ["mixed", "others"], outputs: ["embedding"] },
      ],
    },
    /^batch 1 and batch 32: largest difference [\d.]+ %, cosine at least .*; the limit is 0\.1 %$/,
  ],
  [
    "an embedding that depends on the position in the batch",
    {
      end: [{ op: "CumSum", inputs: ["mixed", "axis"], outputs: ["embedding"] }],
      more: [{ name: "axis", dataType: "INT64", dims: [], data: () => [new Uint8Array(8)] }],
    },
    /^rows in reversed order: largest difference [\d.]+ %/,
  ],
])("finds %s", async (name, options, message) => {
  const report = await checkModel(
    openclipVitB32,
    "image",
    await smallModel(name.replaceAll(" ", "-"), options),
    {
      inputs,
      limit,
    },
  );
  expect(report.ok).toBe(false);
  expect(failed(report)).toContainEqual(
    typeof message === "string" ? message : expect.stringMatching(message),
  );
});

test("reports the difference from the embeddings of another file", async () => {
  const path = await smallModel("one");
  const nearly = await smallModel("nearly", {
    end: [{ op: "Mul", inputs: ["mixed", "factor"], outputs: ["embedding"] }],
    more: [scalarInitializer("factor", 1.002)],
  });
  const against = [fileOf(nearly)];
  const strict = await checkModel(openclipVitB32, "image", path, { inputs, limit, against });
  expect(failed(strict)).toEqual([
    "the other: largest difference 0.200 %, cosine at least 1.0000000; the limit is 0.1 %",
  ]);
  expect(
    (await checkModel(openclipVitB32, "image", path, { inputs, limit: 0.003, against })).ok,
  ).toBe(true);
});

test("compares directions if only one of the files normalises", async () => {
  const unit = await smallModel("unit", {
    end: [
      { op: "ReduceL2", inputs: ["mixed"], outputs: ["length"], attributes: { axes: [1] } },
      { op: "Div", inputs: ["mixed", "length"], outputs: ["embedding"] },
    ],
  });
  const { findings } = await checkModel(openclipVitB32, "image", await smallModel("plain"), {
    inputs,
    limit,
    against: [fileOf(unit)],
  });
  expect(findings.at(-1)).toMatchObject({
    ok: true,
    message: expect.stringMatching(/^the other, after normalisation: largest /),
  });
});

test("reports an embedding of another width as not comparable", async () => {
  const wide = await smallModel("wide", { width: 768 });
  const report = await checkModel(openclipVitB32, "image", await smallModel("narrow"), {
    inputs,
    limit,
    against: [fileOf(wide)],
  });
  expect(failed(report)).toEqual(["the other: must return 512 values, got 768"]);
});

test("lists the external data files of the model", async () => {
  const bytes = await writeWithExternalData(exportedTower(), join(folder, "split.onnx"));
  const { structure, ok } = await checkModel(openclipVitB32, "image", join(folder, "split.onnx"), {
    inputs,
    limit,
  });
  expect(structure.externalData).toEqual([{ file: "weights.bin", bytes }]);
  expect(ok).toBe(true);
});

test.each<[string, () => Promise<string>, RegExp]>([
  ["is missing", async () => join(folder, "none.onnx"), /none\.onnx' does not exist$/],
  [
    "has an unknown operator",
    () => smallModel("odd", { end: [{ op: "Odd", inputs: ["mixed"], outputs: ["embedding"] }] }),
    /odd\.onnx: cannot be loaded: [^\n]*Odd[^\n]*$/,
  ],
])("fails with one line when the file %s", async (_name, make, message) => {
  const error = await checkModel(openclipVitB32, "image", await make(), { inputs, limit }).catch(
    (cause: Error) => cause,
  );
  expect((error as Error).message).toMatch(message);
  expect((error as Error).message).not.toContain("\n");
});
