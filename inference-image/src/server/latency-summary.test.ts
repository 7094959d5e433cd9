import { expect, test } from "vitest";
import { LatencyHistogram, LatencySummary } from "./latency-summary.ts";

const quantiles = [0.5, 0.9, 0.99];

test("gives the quantiles of what was observed", () => {
  const summary = new LatencySummary();
  for (let value = 1; value <= 1000; value += 1) summary.observe((value * 7919) % 1009, 0);
  const [half, most, nearlyAll] = summary.quantiles(quantiles, 0);
  expect(half).toBeGreaterThan(480);
  expect(half).toBeLessThan(530);
  expect(most).toBeGreaterThan(890);
  expect(nearlyAll).toBeGreaterThan(most!);
  expect(summary.count).toBe(1000);
});

test("forgets after a minute, but not the count and the sum", () => {
  const summary = new LatencySummary();
  summary.observe(1000, 0);
  summary.observe(10, 50_000);
  expect(summary.quantiles([1], 55_000)).toEqual([1000]);
  expect(summary.quantiles([1], 61_000)).toEqual([10]);
  expect(summary.quantiles([1], 200_000)).toEqual([Number.NaN]);
  expect([summary.count, summary.sum]).toEqual([2, 1010]);
});

test("keeps a sample of very many, from all of them", () => {
  const summary = new LatencySummary();
  for (let value = 0; value < 100_000; value += 1) summary.observe(value, 0);
  const [half] = summary.quantiles([0.5], 0);
  expect(half).toBeGreaterThan(40_000);
  expect(half).toBeLessThan(60_000);
});

test("a histogram counts up to each bound, the bound included", () => {
  const histogram = new LatencyHistogram([100, 500]);
  for (const value of [100, 101, 500, 9000]) histogram.observe(value);
  expect(histogram.cumulative).toEqual([1, 3]);
  expect([histogram.count, histogram.sum]).toEqual([4, 9701]);
});
