import { expect, test } from "vitest";
import { goSeconds, quantity } from "./quantity.ts";

test.each([
  ["250m", 0.25],
  ["2", 2],
  ["1Gi", 2 ** 30],
  ["10752Mi", 10_752 * 2 ** 20],
  ["1.5k", 1_500],
  ["100u", 0.0001],
  ["1e3", 1_000],
])("%s is %d", (text, value) => {
  expect(quantity(text)).toBeCloseTo(value, 9);
});

test.each(["", "many", "1 Gi", "1Qi"])("'%s' is no quantity", (text) => {
  expect(quantity(text)).toBeNaN();
});

test.each([
  ["5s", 5],
  ["1m30s", 90],
  ["22m0s", 1_320],
  ["500ms", 0.5],
  ["0", 0],
  ["soon", undefined],
  ["", undefined],
])("the Go duration '%s' has %s seconds", (text, seconds) => {
  expect(goSeconds(text)).toBe(seconds);
});
