import fc from "fast-check";
import { expect, test } from "vitest";
import {
  cosine,
  errorsByCode,
  p99MinimumSamples,
  relativeDifference,
  type Sample,
} from "./statistics.ts";
import { summarizeLatency } from "./summarize-latency.ts";

const good = (latencyMs: number): Sample => ({ ok: true, latencyMs });
const bad = (code: string): Sample => ({ ok: false, latencyMs: 1, code });

test("percentiles of 1 to 100 ms are their ranks", () => {
  const summary = summarizeLatency(Array.from({ length: 100 }, (_, i) => good(i + 1)));
  expect(summary).toMatchObject({ count: 100 });
  expect(summary?.p50Ms).toBeCloseTo(50, 0);
  expect(summary?.p95Ms).toBeCloseTo(95, 0);
  expect(summary?.p99Ms).toBeCloseTo(99, 0);
  expect(summary?.maxMs).toBeCloseTo(100, 0);
});

test("failed requests are not in the percentiles", () => {
  expect(summarizeLatency([good(10), bad("timeout")])?.count).toBe(1);
});

test("a run without a good answer has no latency", () => {
  expect(summarizeLatency([bad("timeout")])).toBeUndefined();
});

test("a p99 is reliable from the minimum number of samples on", () => {
  const reliable = (count: number) =>
    summarizeLatency(Array.from({ length: count }, () => good(1)))?.p99Reliable;
  expect([reliable(p99MinimumSamples - 1), reliable(p99MinimumSamples)]).toEqual([false, true]);
});

test("the histogram holds every sample, in microseconds of three digits", () => {
  const summary = summarizeLatency([good(1.2344), good(1.2341), good(20)]);
  expect(summary?.histogram).toEqual([
    [1_230, 2],
    [20_000, 1],
  ]);
});

test("failures are counted by their code", () => {
  expect(errorsByCode([bad("503"), good(1), bad("503"), bad("timeout")])).toEqual({
    "503": 2,
    timeout: 1,
  });
});

test("percentiles rise, and stay within what was measured", () => {
  fc.assert(
    fc.property(
      fc.array(fc.float({ min: 1, max: 10_000, noNaN: true }), { minLength: 1 }),
      (values) => {
        const summary = summarizeLatency(values.map(good));
        const { p50Ms = 0, p95Ms = 0, p99Ms = 0, maxMs = 0 } = summary ?? {};
        expect(p50Ms).toBeLessThanOrEqual(p95Ms);
        expect(p95Ms).toBeLessThanOrEqual(p99Ms);
        expect(p99Ms).toBeLessThanOrEqual(maxMs);
        expect(maxMs).toBeLessThanOrEqual(Math.max(...values) * 1.002 + 0.002);
      },
    ),
  );
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
