import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { embedErrorResponse, embedResponse } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { dinov2Small } from "../../contract/models/dinov2-small.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import { openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { ServedModels } from "../models/served-models.ts";
import { writeTestRepository } from "../models/test-text-model.ts";
import type { RunningEmbedServer } from "./embed-server.ts";
import { page } from "./page.ts";
import { startLoaded, startLoading } from "./test-embed-server.ts";

/** Model that is not in the catalogue: 96 × 64 pixels, embeddings of 24 values. */
const own: ModelSpec = {
  ...openclipVitB32,
  name: "own-model",
  towers: {
    image: {
      ...openclipVitB32.towers.image!,
      input: {
        ...openclipVitB32.towers.image!.input,
        size: { width: 96, height: 64 },
        resize: { mode: "squash" },
      },
    },
  },
  embedding: { width: 24, normalisedBy: "server" },
  batching: { maximum: 4, preferred: [4] },
  sources: {},
};
const specs = [dinov2Small, openclipVitB32, own];

let folder: string;
let server: RunningEmbedServer;
let jpeg: Buffer;
let url: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-models-"));
  await writeTestRepository(folder, specs);
  jpeg = await picture();
  server = await startLoaded({
    ...modelSettings(specs),
    MODEL_REPOSITORY: folder,
    INTRA_OP_THREADS: "1",
  });
  url = `http://127.0.0.1:${server.port}`;
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

function postImage(model?: string): Promise<Response> {
  return fetch(`${url}/embed${model === undefined ? "" : `?model=${model}`}`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(jpeg),
  });
}

function postJson(path: string, body: unknown, accept = "application/json"): Promise<Response> {
  return fetch(`${url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", accept },
    body: JSON.stringify(body),
  });
}

const errorOf = async (response: Response) => {
  const { error } = embedErrorResponse.parse(await response.json());
  return { status: response.status, ...error };
};

const cosine = (a: readonly number[], b: ArrayLike<number>) =>
  a.reduce((sum, value, index) => sum + value * b[index]!, 0);

test.each(specs)("embeds an image with $name as the model alone does", async (spec) => {
  const local = await openLocalEmbedder({ spec, modelPath: await tinyModel(spec) });
  const [expected] = await local.embed([jpeg]);
  await local.close();
  const responses = [
    await postImage(spec.name),
    await postJson("/embed/base64", { images: [jpeg.toString("base64")], model: spec.name }),
  ];
  for (const response of responses) {
    const { embeddings, model } = embedResponse.parse(await response.json());
    expect(model).toBe(spec.name);
    expect(embeddings[0]).toHaveLength(spec.embedding.width);
    expect(cosine(embeddings[0]!, expected!)).toBeCloseTo(1, 6);
  }
});

test("uses the first model with the modality by default", async () => {
  const image = embedResponse.parse(await (await postImage()).json());
  const text = embedResponse.parse(
    await (await postJson("/embed/text", { texts: ["a dog"] })).json(),
  );
  expect([image.model, text.model]).toEqual(["dinov2-small", "openclip-vit-b32"]);
});

test("embeds texts in order, more than a batch at once", async () => {
  const texts = Array.from({ length: 100 }, (_, index) => `photo ${index % 50}`);
  const response = await postJson("/embed/text", { texts });
  expect(response.status).toBe(200);
  const { embeddings } = embedResponse.parse(await response.json());
  expect(embeddings).toHaveLength(100);
  for (const [index, vector] of embeddings.entries()) {
    expect(vector).toHaveLength(512);
    expect(cosine(vector, embeddings[(index + 50) % 100]!)).toBeCloseTo(1, 6);
  }
  const [alone] = embedResponse.parse(
    await (await postJson("/embed/text", { texts: ["photo 7"] })).json(),
  ).embeddings;
  expect(cosine(alone!, embeddings[7]!)).toBeCloseTo(1, 6);
  expect(cosine(alone!, embeddings[8]!)).toBeLessThan(0.999);
});

test("returns embeddings of texts as float32", async () => {
  const response = await postJson("/embed/text", { texts: ["a", "b"] }, "application/octet-stream");
  expect(response.headers.get("x-embedding-shape")).toBe("2,512");
  expect((await response.arrayBuffer()).byteLength).toBe(2 * 512 * 4);
});

test("the page names the models with random weights", async () => {
  const text = await (await fetch(url)).text();
  expect(text).toContain(
    "Random weights, for tests: dinov2-small, openclip-vit-b32, own-model. Similarities and search results have no meaning.",
  );
});

test("the page has no note if no model has random weights", () => {
  const models = new ServedModels([dinov2Small]);
  models.load([{ spec: dinov2Small, hasRandomWeights: false }]);
  expect(page(models, false)).not.toContain("Random weights");
});

test("rejects a model that is not served", async () => {
  const expected = {
    status: 404,
    code: "unknown_model",
    message: "model must be one of dinov2-small, openclip-vit-b32, own-model, got 'resnet'",
  };
  expect(await errorOf(await postImage("resnet"))).toEqual(expected);
  expect(await errorOf(await postJson("/embed/text", { texts: ["a"], model: "resnet" }))).toEqual(
    expected,
  );
});

test("rejects texts for a model without a text tower", async () => {
  expect(
    await errorOf(await postJson("/embed/text", { texts: ["a"], model: "dinov2-small" })),
  ).toEqual({
    status: 400,
    code: "unsupported_modality",
    message: "dinov2-small embeds no texts; use openclip-vit-b32",
  });
});

test.each([
  [{ texts: [] }, 400, "texts must not be an empty list"],
  [{ texts: ["a", 1] }, 400, "text 1 must be a string"],
  [{ texts: ["a", ""] }, 400, "text 1 must not be an empty string"],
  [{ text: "a" }, 400, "texts is required"],
  [{ texts: "a" }, 400, "texts must be a list"],
  [{ texts: ["a"], model: 1 }, 400, "model must be the name of a model"],
  [["a"], 400, "the body must be an object"],
  [{ texts: Array(2_049).fill("a") }, 413, "texts must be 1 to 2048, got 2049"],
  [
    { texts: ["a", "b".repeat(32_769)] },
    413,
    "text 1 must have at most 32768 characters, got 32769",
  ],
])("rejects an invalid body %#", async (body, status, message) => {
  expect(await errorOf(await postJson("/embed/text", body))).toMatchObject({ status, message });
});

test("has metrics of each model", async () => {
  await postImage("own-model");
  const text = await (await fetch(`${url}/metrics`)).text();
  for (const line of [
    `${embedMetrics.images}{model="own-model"} `,
    `${embedMetrics.texts}{model="openclip-vit-b32"} `,
    `${embedMetrics.batchSize}_count{model="openclip-vit-b32",modality="text"} `,
    `${embedMetrics.inferSeconds}_count{model="dinov2-small",modality="image"} `,
    `${embedMetrics.requests}{route="/embed",status="404",model="none",client="none"} `,
    `${embedMetrics.requests}{route="/embed/text",status="200",model="openclip-vit-b32",client="none"} `,
  ]) {
    expect(text).toContain(`\n${line}`);
  }
});

test("fails if a file does not fit its spec, naming the tensor and the shapes", async () => {
  const wrong = await mkdtemp(join(tmpdir(), "clipstack-misfit-"));
  await writeTestRepository(wrong, [own]);
  const other: ModelSpec = { ...own, embedding: { ...own.embedding, width: 32 } };
  const misfit = await startLoading({
    ...modelSettings([other]),
    MODEL_REPOSITORY: wrong,
  });
  await expect(misfit.loaded).rejects.toThrow(
    `${join(wrong, "own_model/1/model.onnx")}: output 'embedding' must be FP32 [32], got FP32 [24]`,
  );
  await misfit.stop();
  await rm(wrong, { recursive: true });
});
