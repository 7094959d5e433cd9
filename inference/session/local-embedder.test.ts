import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { picture } from "../preprocess/test-images.ts";
import { embeddingsOf } from "./embeddings.ts";
import { type LocalEmbedder, openLocalEmbedder } from "./local-embedder.ts";

let embedder: LocalEmbedder;

beforeAll(async () => {
  embedder = await openLocalEmbedder({
    spec: defaultModel,
    modelPath: await tinyModel(),
    intraOpThreads: 1,
  });
});
afterAll(async () => {
  await embedder.close();
});

function cosine(a: Float32Array, b: Float32Array): number {
  return a.reduce((sum, value, index) => sum + value * b[index]!, 0);
}

test("returns vectors of unit norm", async () => {
  const [vector] = await embedder.embed([await picture()]);
  expect(vector).toHaveLength(defaultModel.embedding.width);
  expect(Math.hypot(...vector!)).toBeCloseTo(1, 6);
});

test("returns the same vector for a picture in any format, and another for another picture", async () => {
  const [png, webp, jpeg, other] = await embedder.embed(
    await Promise.all([
      picture("png"),
      picture("webp"),
      picture("jpeg"),
      picture("png", { seed: 5 }),
    ]),
  );
  expect(cosine(png!, jpeg!)).toBeGreaterThan(0.99);
  expect(cosine(png!, webp!)).toBeGreaterThan(0.99);
  expect(cosine(png!, other!)).toBeLessThan(cosine(png!, jpeg!));
});

test("embeds more images than the batch size in order", async () => {
  const [first, second] = await Promise.all([picture("jpeg"), picture("jpeg", { seed: 2 })]);
  const images = Array.from({ length: 35 }, (_, index) => (index === 33 ? second : first));
  const vectors = await embedder.embed(images);
  expect(vectors).toHaveLength(35);
  const [alone] = await embedder.embed([second]);
  expect(cosine(vectors[33]!, alone!)).toBeCloseTo(1, 5);
  expect(cosine(vectors[34]!, alone!)).toBeLessThan(0.999);
});

test("returns no vectors for no images", async () => {
  expect(await embedder.embed([])).toEqual([]);
});

test("fails on an unreadable image", async () => {
  await expect(embedder.embed([Buffer.from("hello")])).rejects.toThrow(
    "is not a JPEG, PNG or WebP file",
  );
});

test("fails on an output of another shape", () => {
  const output = { name: "embedding", dataType: "FP32", shape: [1, 2] } as const;
  expect(() =>
    embeddingsOf({ ...output, data: new Float32Array(2) }, { count: 1, width: 512 }),
  ).toThrow("[failed] the output must be FP32 [1, 512], got FP32 [1, 2]");
});
