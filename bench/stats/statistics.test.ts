import { expect, test } from "vitest";
import { cosine, median, relativeDifference } from "./statistics.ts";

test("the median of an even number of values is the mean of the two in the middle", () => {
  expect(median([4, 1, 3, 2])).toBe(2.5);
  expect(median([9, 1, 5])).toBe(5);
  expect(median([])).toBeUndefined();
});

test("a vector and its multiple have cosine 1 and a relative difference", () => {
  expect(cosine([3, 4], [6, 8])).toBeCloseTo(1);
  expect(relativeDifference([3, 4], [6, 8])).toBeCloseTo(0.5);
});

test("a vector of another width is not close to anything", () => {
  expect(cosine([1, 0, 1], [1, 0])).toBeNaN();
  expect(relativeDifference([1], [1, 0])).toBeNaN();
});

test("a vector with NaN is not close to anything", () => {
  expect(cosine([1, Number.NaN], [1, 0])).toBeNaN();
  expect(relativeDifference([1, Number.NaN], [1, 0])).toBeNaN();
});
