import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { writeModel } from "../../model-tools/generate/test-model.ts";
import { int64Initializer } from "../../model-tools/onnx/writer.ts";
import { createMetrics } from "../models/metrics.ts";
import { servedImages } from "../models/test-served-models.ts";
import { createOnnxEmbedder } from "../onnx/onnx-embedder.ts";
import { openServerModel } from "../onnx/server-model.ts";
import { buildApp } from "./app.ts";

const fp32Model = tritonModel(defaultModel, "fp32");

/** Model that returns the square root of the first 512 values: finite for a white image, NaN for a black one. */
async function writeRootModel(file: string): Promise<void> {
  const [{ name, dims }] = fp32Model.inputs;
  const [output] = fp32Model.outputs;
  const node = (op: string, result: string, inputs: readonly string[]) => ({
    name: result,
    op,
    inputs,
    outputs: [result],
  });
  await writeModel(file, {
    producer: "test",
    opset: 17,
    irVersion: 8,
    graphName: "root",
    inputs: [{ name, dims: ["batch", ...dims] }],
    outputs: [{ name: output.name, dims: ["batch", ...output.dims] }],
    nodes: [
      node("Flatten", "flat", [name]),
      node("Slice", "first", ["flat", "start", "end", "axis"]),
      node("Sqrt", output.name, ["first"]),
    ],
    initializers: [
      int64Initializer("start", [0]),
      int64Initializer("end", [defaultModel.embedding.width]),
      int64Initializer("axis", [1]),
    ],
  });
}

const uniformImage = (colour: string) =>
  sharp({ create: { width: 224, height: 224, channels: 3, background: colour } })
    .png()
    .toBuffer();

test("fails with the index of the image whose embedding is not finite", async () => {
  const folder = await mkdtemp(join(tmpdir(), "invalid-embedding-"));
  const modelPath = join(folder, "model.onnx");
  await writeRootModel(modelPath);
  const model = await openServerModel({ spec: defaultModel, modelPath, intraOpThreads: 1 });
  const embedder = createOnnxEmbedder(model, {
    maxBatchSize: 32,
    maxQueueDelayMicroseconds: 0,
  });
  const app = buildApp({
    models: servedImages(embedder),
    metrics: createMetrics(),
    limits: {
      maxQueueSize: 8,
      maxQueueBytes: 1e7,
      maxBodyBytes: 1e6,
      maxImagePixels: 1e6,
    },
  });
  try {
    const [white, black] = await Promise.all([uniformImage("white"), uniformImage("black")]);
    const embed = (...images: readonly Buffer[]) =>
      app.inject({
        method: "POST",
        url: "/embed/base64",
        headers: { "content-type": "application/json" },
        payload: { images: images.map((image) => image.toString("base64")) },
      });
    expect((await embed(white, white)).statusCode).toBe(200);
    const response = await embed(white, black);
    expect(response.statusCode).toBe(500);
    expect(response.json()).toEqual({
      error: {
        code: "invalid_embedding",
        message: "image 1 must have an embedding of finite, non-zero norm, got NaN",
        image: 1,
      },
    });
  } finally {
    await app.close();
    await rm(folder, { recursive: true });
  }
});
