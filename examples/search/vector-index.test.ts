import { mkdtemp, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { buildIndex, openIndex } from "./vector-index.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "index-"));
  const data = Float32Array.of(1, 0, 0, 1);
  await buildIndex(folder, { model: "m", width: 2, count: 2, data, uris: ["a", "b"] });
});

test("searches the vectors of an index", async () => {
  const index = await openIndex(folder);
  expect((await index.search(Float32Array.of(0, 1), 1))[0]).toEqual({ uri: "b", cosine: 1 });
});

test.each([
  [
    "of other images",
    { model: "m", width: 2, sample: [1, 0], uris: ["a"] },
    "2 vectors of 1 images",
  ],
  ["with truncated vectors", undefined, "File is corrupted: .*"],
])("fails to open an index %s, and names it", async (_, images, problem) => {
  if (images === undefined) await truncate(join(folder, "search.usearch"), 10);
  else await writeFile(join(folder, "search.json"), JSON.stringify(images));
  await expect(openIndex(folder)).rejects.toThrow(
    new RegExp(`^'${folder}' has a damaged index: ${problem}; run 'clipstack-search build' again$`),
  );
});
