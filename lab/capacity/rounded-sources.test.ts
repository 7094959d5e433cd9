import { expect, test } from "vitest";
import { drawnValue, roundedSources } from "./rounded-sources.ts";
import { testFacts } from "./test-facts.ts";

test.each([
  [{ value: 32.3 }, 32.25, 32.35],
  [{ value: 95 }, 94.5, 95.5],
  // published as 2.0
  [{ value: 2 }, 1.95, 2.05],
  [{ range: [10, 15] as [number, number] }, 10, 15],
])("draws from the values that round to the published: %j", (figure, low, high) => {
  expect(drawnValue(figure, () => 0)).toBeCloseTo(low, 9);
  expect(drawnValue(figure, () => 0.999_999_999)).toBeCloseTo(high, 6);
});

test("draws the median of resampled rounds of a measurement", () => {
  expect(drawnValue({ value: 2, rounds: [1, 2, 9] }, () => 0.99)).toBe(9);
});

test("the same seed draws the same sources", () => {
  const [first] = roundedSources(testFacts.published, 1, 7);
  const [again] = roundedSources(testFacts.published, 1, 7);
  const [other] = roundedSources(testFacts.published, 1, 8);
  expect(again).toEqual(first);
  expect(other).not.toEqual(first);
});
