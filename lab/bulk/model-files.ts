import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { embeddingTensor, imagePixels, imageTowerOf } from "../../contract/model-shapes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { ensureOptimised } from "../../model-tools/convert/optimise.ts";
import { ensureGeneratedModel } from "../../model-tools/generate/generate.ts";
import { writeModel } from "../../model-tools/generate/test-model.ts";
import { GraphBuilder } from "../../model-tools/graph/graph-builder.ts";

export interface BulkModels {
  /** Original file with random weights. */
  readonly full: string;
  /** File of precision fp32-optimised, which workers and the runtime execute. */
  readonly optimised: string;
  /** File that computes nothing. */
  readonly free: string;
}

export async function bulkModels(): Promise<BulkModels> {
  const full = await ensureGeneratedModel(defaultModel);
  const free = join(mkdtempSync(join(tmpdir(), "clipstack-bulk-model-")), "free.onnx");
  await writeFreeModel(free);
  return { full, optimised: await ensureOptimised(defaultModel, full), free };
}

/** Model whose embedding is the first pixels of the image plus 1. */
async function writeFreeModel(file: string): Promise<void> {
  const tower = imageTowerOf(defaultModel);
  const pixels = imagePixels(tower);
  const embedding = embeddingTensor(defaultModel, tower);
  const graph = new GraphBuilder();
  const flat = graph.node("Flatten", "flat", [pixels.name], { axis: 1 });
  const range = [graph.integers("from", [0]), graph.integers("to", embedding.dims)];
  const first = graph.node("Slice", "first", [flat, ...range, graph.integers("axis", [1])]);
  const values = graph.node("Cast", "values", [first], { to: 1 });
  graph.node("Add", embedding.name, [values, graph.scalar("one", 1)]);
  await writeModel(file, {
    ...{ producer: "clipstack", opset: 17, irVersion: 8, graphName: "free" },
    inputs: [{ name: pixels.name, dataType: "UINT8", dims: ["batch", ...pixels.dims] }],
    outputs: [{ name: embedding.name, dims: ["batch", ...embedding.dims] }],
    nodes: graph.nodes,
    initializers: graph.initializers,
  });
}
