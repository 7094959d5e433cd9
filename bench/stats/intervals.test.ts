import { expect, test } from "vitest";
import type { LoadPoint } from "../record/bench-record.ts";
import { testLoadPoint } from "../report/test-bench-record.ts";
import {
  confidencePerRatio,
  differs,
  figureInterval,
  figureOf,
  meanInterval,
  pairedRatio,
  unpairedRatio,
} from "./intervals.ts";

const withRounds = (rates: readonly number[], changes: Partial<LoadPoint> = {}): LoadPoint => {
  const point = testLoadPoint();
  const [template] = point.rounds;
  const rounds = rates.map((imagesPerSecond, i) => ({
    ...template!,
    round: i + 1,
    imagesPerSecond,
  }));
  const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
  return { ...point, rounds, imagesPerSecond: mean, ...changes };
};

test("the interval of a mean is that of a t table", () => {
  // t(0.975, 4) = 2.776; standard error of 1..5 is 0.7071
  const interval = meanInterval([1, 2, 3, 4, 5])!;
  expect(interval.mean).toBe(3);
  expect(interval.low).toBeCloseTo(3 - 2.776 * Math.SQRT1_2, 3);
  expect(interval.high).toBeCloseTo(3 + 2.776 * Math.SQRT1_2, 3);
  expect(figureInterval(withRounds([1, 2, 3, 4, 5]), "throughput")).toEqual(interval);
});

test("the ratio of a load point to itself is 1 for every metric", () => {
  const point = testLoadPoint();
  for (const metric of ["throughput", "p50", "p95", "p99"] as const) {
    for (const interval of [
      pairedRatio([[point, point]], metric),
      unpairedRatio([[point, point]], metric),
    ]) {
      expect(interval?.ratio).toBe(1);
      expect(differs(interval!)).toBe(false);
    }
  }
});

test("half the rate and twice the latency are significant differences", () => {
  const pair = [testLoadPoint(), testLoadPoint({ slower: 2 })] as const;
  expect(pairedRatio([pair], "throughput")!.high).toBeLessThan(0.6);
  expect(unpairedRatio([pair], "p50")!.low).toBeGreaterThan(1.8);
});

test("a change that all endpoints share in a round cancels out only if rounds are paired", () => {
  const machine = [100, 60, 120, 80, 140];
  const [a, b] = [withRounds(machine), withRounds(machine.map((rate) => rate * 1.05))];
  const paired = pairedRatio([[a, b]], "throughput")!;
  expect([paired.low, paired.high]).toEqual([expect.closeTo(1.05), expect.closeTo(1.05)]);
  expect(differs(unpairedRatio([[a, b]], "throughput")!)).toBe(false);
});

test("rounds are paired by number, and those that only one load point has are left out", () => {
  const a = withRounds([100, 200, 400]);
  const reversed = { ...withRounds([110, 220, 440]) };
  reversed.rounds = [...reversed.rounds].reverse().slice(0, 2);
  const interval = pairedRatio([[a, reversed]], "throughput")!;
  expect([interval.low, interval.high]).toEqual([expect.closeTo(1.1), expect.closeTo(1.1)]);
});

test("windows do not narrow an interval: the unit is the round", () => {
  const point = withRounds([100, 120, 90]);
  const [window] = point.rounds[0]!.windows;
  const many = {
    ...point,
    rounds: point.rounds.map((round) => ({ ...round, windows: Array(50).fill(window) })),
  };
  expect(figureInterval(many, "throughput")).toEqual(figureInterval(point, "throughput"));
});

test("several load points have the mean ratio of each round", () => {
  const pairs = [1, 4, 8].map(
    (batch) => [testLoadPoint({ batch }), testLoadPoint({ batch, slower: 1.2 })] as const,
  );
  expect(pairedRatio(pairs, "throughput")!.ratio).toBeCloseTo(1 / 1.2, 2);
  const drifting = [
    [withRounds([100, 100, 100]), withRounds([100, 110, 120])],
    [withRounds([10, 10, 10]), withRounds([10, 11, 12])],
  ] as const;
  // the load points of a round are not independent: two of them have the interval of one
  expect(pairedRatio(drifting, "throughput")!.high).toBeCloseTo(
    pairedRatio(drifting.slice(0, 1), "throughput")!.high,
  );
});

test("more ratios judged together have wider intervals", () => {
  const pair = [withRounds([100, 101, 99, 102]), withRounds([98, 102, 97, 103])] as const;
  expect(confidencePerRatio(1)).toBe(0.95);
  expect(confidencePerRatio(10)).toBeCloseTo(0.995);
  const [one, ten] = [1, 10].map(
    (ratios) => pairedRatio([pair], "throughput", confidencePerRatio(ratios))!,
  );
  expect(ten!.high - ten!.low).toBeGreaterThan(1.5 * (one!.high - one!.low));
});

test("a p99 of too few requests has no interval", () => {
  const point = testLoadPoint();
  const few = { ...point, latencyMs: { ...point.latencyMs!, p99Reliable: false } };
  expect(figureOf(few, "p99")).toBeUndefined();
  expect(pairedRatio([[few, few]], "p99")).toBeUndefined();
});

test("one round has no interval", () => {
  const [one, two] = [withRounds([100]), withRounds([100, 101])];
  expect(pairedRatio([[one, two]], "throughput")).toBeUndefined();
  expect(unpairedRatio([[two, one]], "throughput")).toBeUndefined();
  expect(figureInterval(one, "throughput")).toBeUndefined();
});
