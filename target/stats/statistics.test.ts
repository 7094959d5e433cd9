import { expect, test } from "vitest";
import { cosine, median, relativeDifference } from "./statistics.ts";

test("the median of an even number of values is the mean of the two middle values", () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([9, 1, 5])).toBe(5);
  expect(median([])).toBeUndefined();
});

test("a vector and its multiple have cosine 1 and a nonzero relative difference", () => {
  expect(cosine([3, 4], [6, 8])).toBeCloseTo(1);
  expect(relativeDifference([3, 4], [6, 8])).toBeCloseTo(0.5);
});

test("a vector of another width has no cosine or relative difference", () => {
  expect(cosine([1, 0, 1], [1, 0])).toBeNaN();
  expect(relativeDifference([1], [1, 0])).toBeNaN();
});

test("a vector with NaN has no cosine or relative difference", () => {
  expect(cosine([1, Number.NaN], [1, 0])).toBeNaN();
  expect(relativeDifference([1, Number.NaN], [1, 0])).toBeNaN();
});
