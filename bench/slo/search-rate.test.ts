import { expect, test } from "vitest";
import { searchRate } from "./search-rate.ts";

const limits = { upperBound: 100, tolerance: 0.02, lowest: 1, maxTrials: 12 };

async function search(capacity: number, changes: Partial<typeof limits> = {}) {
  const tried: number[] = [];
  const found = await searchRate({ ...limits, ...changes }, async (rate) => {
    tried.push(rate);
    return rate <= capacity;
  });
  return { found, tried };
}

test.each([3, 17, 50, 73.4, 99])("finds a limit of %d within the tolerance", async (capacity) => {
  const { found } = await search(capacity);
  expect(found).toBeLessThanOrEqual(capacity);
  expect(found).toBeGreaterThan(0.97 * capacity);
});

test("raises an upper bound that meets the SLO", async () => {
  const { found, tried } = await search(180, { maxTrials: 20 });
  expect(tried).toContain(100);
  expect(found).toBeGreaterThan(0.97 * 180);
  expect(found).toBeLessThanOrEqual(180);
});

test("does not measure the upper bound while lower rates are rejected", async () => {
  expect((await search(60)).tried).not.toContain(100);
});

test("ends after the maximum number of trials with the highest accepted rate", async () => {
  expect(await search(73.4, { maxTrials: 3 })).toEqual({ found: 62.5, tried: [50, 75, 62.5] });
});

test("has no result if every rate down to the lowest is rejected", async () => {
  expect(await search(0, { lowest: 10 })).toEqual({
    found: undefined,
    tried: [50, 25, 12.5, 6.25],
  });
});
