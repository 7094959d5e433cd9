import { expect, test } from "vitest";
import { describeLatency, percentile, sortedLatencies } from "./latency.ts";

const oneToHundred = Float64Array.from({ length: 100 }, (_, i) => i + 1);

test("a percentile is one of the measured latencies", () => {
  expect([0, 1, 50, 99, 99.5, 100].map((p) => percentile(oneToHundred, p))).toEqual([
    1, 1, 50, 99, 100, 100,
  ]);
});

test("latency starts when the request was due", () => {
  const samples = [
    { dueMs: 10, sentMs: 15, doneMs: 40 },
    { dueMs: 20, sentMs: 20, doneMs: 25 },
  ];
  expect([...sortedLatencies(samples)]).toEqual([5, 30]);
});

test("the histogram contains every response and yields the percentiles to three significant digits", () => {
  const { histogram, latencyMs } = describeLatency(oneToHundred);
  expect(histogram.reduce((sum, [, count]) => sum + count, 0)).toBe(100);
  expect(histogram[0]).toEqual([1_000, 1]);
  expect(latencyMs).toEqual({
    mean: 50.5,
    p50: 50,
    p90: 90,
    p95: 95,
    p99: 99,
    max: 100,
    p99Reliable: false,
  });
});

test("no latency without a response", () => {
  expect(describeLatency(new Float64Array())).toEqual({ histogram: [] });
});
