import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { type LocalEmbedder, openLocalEmbedder } from "../../inference/session/local-embedder.ts";
import { ensureGeneratedModel } from "./generate.ts";

/** Full-size model on the sample images: not a unit test, because it takes seconds and 351 MB. */

const samples = new URL("../samples/", import.meta.url);
const { images } = JSON.parse(readFileSync(new URL("samples.json", samples), "utf8")) as {
  readonly images: readonly { readonly file: string; readonly nearDuplicateOf?: string }[];
};

let embedder: LocalEmbedder;
let vectors: readonly Float32Array[];
beforeAll(async () => {
  embedder = await openLocalEmbedder({
    spec: defaultModel,
    modelPath: await ensureGeneratedModel(defaultModel),
  });
  vectors = await embedder.embed(images.map(({ file }) => readFileSync(new URL(file, samples))));
});
afterAll(async () => {
  await embedder?.close();
});

const cosine = (i: number, j: number) =>
  vectors[i]!.reduce((sum, value, k) => sum + value * vectors[j]![k]!, 0);
const indexOf = (name: string) => images.findIndex(({ file }) => file === name);

test("different images have a cosine below 0.95", () => {
  const alike: string[] = [];
  for (const [i, a] of images.entries()) {
    for (const [j, b] of images.slice(0, i).entries()) {
      if (a.nearDuplicateOf === b.file || b.nearDuplicateOf === a.file) continue;
      if (cosine(i, j) >= 0.95) alike.push(`${a.file} ${b.file} ${cosine(i, j).toFixed(4)}`);
    }
  }
  expect(alike).toEqual([]);
});

test.each([
  ["sunset-recompressed.jpg", "sunset.jpg"],
  ["dunes-exif-3.jpg", "dunes.jpg"],
  ["fruit-exif-8.jpg", "fruit.jpg"],
])("%s has a cosine above 0.99 with %s", (copy, original) => {
  expect(cosine(indexOf(copy), indexOf(original))).toBeGreaterThan(0.99);
});
