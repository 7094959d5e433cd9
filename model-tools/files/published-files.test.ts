import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { openTowerSession } from "../../inference/session/tower-session.ts";
import { checkModel } from "../check/check-model.ts";
import { syntheticImages } from "../check/compare-models.ts";
import { optimiseModel } from "../convert/optimise.ts";
import { modelFile } from "../generate/generate.ts";
import { normalPieces } from "../generate/random-weights.ts";
import { writeModel } from "../generate/test-model.ts";
import { exportedTower } from "../graph/test-exported-tower.ts";
import { writeWithExternalData } from "../onnx/test-external-data.ts";
import type { OnnxModel } from "../onnx/writer.ts";
import { linkTowers } from "../repository/repository.ts";
import { externalDataOf } from "./external-data.ts";
import { modelInfo, sha256Of } from "./model-info.ts";

/** Files as PyTorch, `transformers` and Optimum write them. */

const images = syntheticImages(4, imageTowerOf(openclipVitB32).input.size);
const own: ModelSpec = { ...openclipVitB32, batching: { maximum: 4, preferred: [4] } };

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-published-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Published {
  readonly input?: string;
  readonly inputDims?: readonly (number | string)[];
  /** Outputs before the embeddings: the mean colour, or the sum of all without a batch dimension. */
  readonly others?: readonly ("pooler_output" | "total")[];
  readonly embeddings?: string;
}

/** Tower that multiplies the mean colour. The embeddings are its last output. */
function published(options: Published): OnnxModel {
  const { input = "image", inputDims = ["batch", 3, 224, 224], others = [] } = options;
  const { embeddings = "embedding" } = options;
  return {
    ...{ producer: "test", opset: 17, irVersion: 8, graphName: "published" },
    inputs: [{ name: input, dims: inputDims }],
    outputs: [
      ...others.map((name) => ({ name, dims: name === "total" ? [] : ["batch", 3] })),
      { name: embeddings, dims: ["batch", 512] },
    ],
    nodes: [
      { op: "GlobalAveragePool", inputs: [input], outputs: ["mean"] },
      { op: "Flatten", inputs: ["mean"], outputs: ["pooler_output"] },
      { op: "MatMul", inputs: ["pooler_output", "weights"], outputs: [embeddings] },
      { op: "ReduceSum", inputs: ["mean"], outputs: ["total"], attributes: { keepdims: 0 } },
    ].map((node, index) => ({ ...node, name: `node${index}` })),
    initializers: [
      {
        name: "weights",
        dataType: "FLOAT",
        dims: [3, 512],
        data: () => normalPieces(1, "weights", 3 * 512, 1),
      },
    ],
  };
}

const named = (tensor: string, output: string): ModelSpec => {
  const tower = imageTowerOf(own);
  const image = { ...tower, input: { ...tower.input, tensor }, output };
  return { ...own, name: "own-names", towers: { image } };
};

describe.each<[string, ModelSpec, OnnxModel]>([
  [
    "dynamic axes",
    named("pixel_values", "image_embeds"),
    published({
      input: "pixel_values",
      inputDims: ["batch_size", "num_channels", "height", "width"],
      embeddings: "image_embeds",
    }),
  ],
  ["several outputs", own, published({ others: ["pooler_output"] })],
  ["an output without a batch dimension", own, published({ others: ["total"] })],
  [
    "the names of transformers",
    own,
    published({ input: "pixel_values", others: ["pooler_output"], embeddings: "image_embeds" }),
  ],
  ["names that are not known", own, published({ embeddings: "vector" })],
])("a file with %s", (name, spec, model) => {
  const isServed = name !== "names that are not known";
  let file: string;
  beforeAll(async () => {
    file = join(folder, `${name.replaceAll(" ", "-")}.onnx`);
    await writeModel(file, model);
  });

  const open = async () => {
    const { session } = await openTowerSession({ spec, modality: "image", modelPath: file });
    await session.close();
    return true;
  };

  test("is served if 'model check' accepts it", async () => {
    const report = await checkModel(spec, "image", file, { inputs: images, limit: 0.001 });
    const found = report.findings.filter(({ ok }) => !ok).map(({ message }) => message);
    expect(await open().catch((error: Error) => error.message)).toEqual(
      isServed ? true : expect.stringContaining("must have the output 'embedding'"),
    );
    expect(found).toEqual(
      isServed ? [] : [expect.stringContaining("must have the output 'embedding'")],
    );
  });

  test.runIf(isServed)("is optimised", async () => {
    const target = `${file}-optimised.onnx`;
    const info = await optimiseModel(spec, file, target, images);
    expect(info.agreement?.minCosine).toBeGreaterThan(0.999999);
    await expect(checkOptimised(spec, target)).resolves.toEqual([1, 1]);
  });
});

async function checkOptimised(spec: ModelSpec, modelPath: string) {
  const { session } = await openTowerSession({ spec, modality: "image", modelPath });
  const counts = [session.inputs.length, session.outputs.length];
  await session.close();
  return counts;
}

describe("external data", () => {
  let file: string;
  beforeAll(async () => {
    file = join(folder, "external", "tower.onnx");
    await mkdir(join(folder, "external"));
    await writeWithExternalData(exportedTower(), file, "model.onnx.data");
  });

  test("is served through the links of a repository", async () => {
    const repository = join(folder, "repository");
    await linkTowers([{ spec: own, files: { image: file } }], repository);
    const modelPath = modelFile(own, "fp32", repository);
    const { session } = await openTowerSession({ spec: own, modality: "image", modelPath });
    await session.close();
    const { findings } = await checkModel(own, "image", modelPath, {
      inputs: images,
      limit: 0.001,
    });
    expect(findings.filter(({ ok }) => !ok)).toEqual([]);
    expect(await modelInfo(modelPath)).toEqual(await modelInfo(file));
  });

  test("becomes part of an optimised file, whichever graph it gets", async () => {
    const other = join(folder, "external", "other.onnx");
    await writeWithExternalData(exportedTower({ unitLength: true }), other, "other.data");
    for (const [source, part] of [
      [file, "graph"],
      [other, "input"],
    ] as const) {
      const target = join(folder, `${part}.onnx`);
      const info = await optimiseModel(own, source, target, images);
      expect(info.parts).toEqual([part]);
      expect(info.derivedFrom).toBe((await modelInfo(source)).sha256);
      expect(externalDataOf(target)).toEqual([]);
    }
  });

  test("is part of the checksum", async () => {
    const { sha256 } = await modelInfo(file);
    expect(sha256).not.toBe(await sha256Of(file));
    await writeWithExternalData(exportedTower({ activation: "tanh" }), file, "model.onnx.data");
    expect((await modelInfo(file)).sha256).not.toBe(sha256);
  });

  test("is required", async () => {
    await rm(join(folder, "external", "model.onnx.data"));
    expect(() => externalDataOf(file)).toThrow(
      `${file}: its external data 'model.onnx.data' does not exist`,
    );
  });

  test("is not searched in a file of another kind", () => {
    expect(externalDataOf(import.meta.filename)).toEqual([]);
  });
});
