import { expect, test } from "vitest";
import { censoredPercentile, succeededWithin } from "./censored.ts";

/** Latencies of 1 to `count` ms, one request each. */
const upTo = (count: number) =>
  Array.from({ length: count }, (_, i): [us: number, requests: number] => [(i + 1) * 1_000, 1]);

test("without failures it is the percentile of the latencies", () => {
  const outcomes = { histogram: upTo(200), errors: {} };
  expect(censoredPercentile(outcomes, 50)).toBe(100);
  expect(censoredPercentile(outcomes, 99)).toBe(198);
  expect(censoredPercentile(outcomes, 100)).toBe(200);
});

test("a failed request counts as later than every success", () => {
  // 100 requests: rank 99 is the slowest of the 99 successes
  expect(censoredPercentile({ histogram: upTo(99), errors: { "503": 1 } }, 99)).toBe(99);
  // the median of 198 successes and 2 failures has rank 100
  expect(censoredPercentile({ histogram: upTo(198), errors: { "503": 2 } }, 50)).toBe(100);
});

test("with more than 1 % failed requests the p99 is beyond every limit, whatever the code", () => {
  const errors = { "503": 1, "no response in time": 1 };
  const outcomes = { histogram: upTo(98), errors };
  expect(censoredPercentile(outcomes, 99)).toBe(Number.POSITIVE_INFINITY);
  expect(censoredPercentile(outcomes, 98)).toBe(98);
});

test("a load without a success is beyond every limit, one without requests has no percentile", () => {
  expect(censoredPercentile({ histogram: [], errors: { "503": 3 } }, 50)).toBe(
    Number.POSITIVE_INFINITY,
  );
  expect(censoredPercentile({ histogram: [], errors: {} }, 50)).toBeNaN();
});

test("a percentile is within a limit exactly if that share of all requests succeeded within it", () => {
  for (const failed of [0, 1, 2, 5, 20]) {
    const outcomes = { histogram: upTo(100), errors: { "503": failed } };
    for (const limitMs of [40, 50, 94, 95, 98.5, 99, 100]) {
      for (const percent of [50, 95, 99]) {
        const share = succeededWithin(outcomes, limitMs) / (100 + failed);
        expect(censoredPercentile(outcomes, percent) <= limitMs).toBe(share >= percent / 100);
      }
    }
  }
});
