import { expect, test } from "vitest";
import { onnxChunks } from "../../model-tools/onnx/writer.ts";
import { cosineBlockGraph } from "./cosine-blocks.ts";
import { nearDuplicates } from "./near-duplicates.ts";
import { cosineBlockModel } from "./test-cosine-block.ts";
import { noisyCopies } from "./test-vectors.ts";

test("the embedded graph equals the output of the ONNX writer", () => {
  const bytes = Buffer.concat([...onnxChunks(cosineBlockModel)].map((chunk) => Buffer.from(chunk)));
  expect(cosineBlockGraph).toBe(bytes.toString("base64"));
});

/** Enough for several blocks of rows and columns. */
const table = noisyCopies({ originals: 1_700, copies: 2, width: 16, noise: 0.1, seed: 3 });
const { width, count, data } = table;
const expected: string[] = [];
for (let a = 0; a < count; a++) {
  for (let b = a + 1; b < count; b++) {
    let cosine = 0;
    for (let k = 0; k < width; k++) cosine += data[a * width + k]! * data[b * width + k]!;
    if (cosine >= 0.97) expected.push(`${a}-${b}`);
  }
}

const found = async (isKnown?: (index: number) => boolean) => {
  const pairs = await nearDuplicates(table, { threshold: 0.97, isKnown });
  expect(pairs.map(({ cosine }) => cosine)).toEqual(
    pairs.map(({ cosine }) => cosine).sort((x, y) => y - x),
  );
  return pairs.map(({ a, b }) => `${a}-${b}`).sort();
};

test("finds the same pairs as a simple loop, the most similar first", async () => {
  expect(expected.length).toBeGreaterThan(1_000);
  expect(await found()).toEqual(expected.sort());
});

test("does not compare known vectors with each other", async () => {
  const isKnown = (index: number) => index % 3 > 0;
  const isNew = (pair: string) => pair.split("-").some((index) => !isKnown(Number(index)));
  expect(await found(isKnown)).toEqual(expected.filter(isNew).sort());
});
