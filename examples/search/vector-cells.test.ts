import { expect, test } from "vitest";
import { openCosineBlocks } from "./cosine-blocks.ts";
import { noisyCopies } from "./test-vectors.ts";
import { cellCount, closestCells, maxExactVectors, trainCentres } from "./vector-cells.ts";

test("compares few vectors exactly", () => {
  expect(cellCount(maxExactVectors)).toBe(1);
  expect(cellCount(1_000_000)).toBe(1_000);
});

test("a copy with noise is in the cells of its original", async () => {
  const table = noisyCopies({ originals: 2_000, copies: 1, width: 64, noise: 0.1, seed: 5 });
  const blocks = await openCosineBlocks();
  const centres = await trainCentres(blocks, table, 50);
  const cells = await closestCells(blocks, table, centres, 4);
  await blocks.close();
  expect(centres.count).toBe(50);
  let together = 0;
  for (let i = 0; i < 2_000; i++) {
    const copy = cells.subarray(4 * (2_000 + i), 4 * (2_000 + i) + 4);
    if (copy.includes(cells[4 * i]!)) together++;
  }
  expect(together).toBeGreaterThan(1_980);
});

test("near-equal vectors have one centre", async () => {
  const table = noisyCopies({ originals: 1, copies: 500, width: 16, noise: 0.01, seed: 6 });
  const blocks = await openCosineBlocks();
  expect((await trainCentres(blocks, table, 20)).count).toBe(1);
  await blocks.close();
});
