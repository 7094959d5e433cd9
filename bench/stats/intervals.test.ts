import { expect, test } from "vitest";
import type { LoadPoint } from "../record/bench-record.ts";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { differs, figureOf, meanRatio, ratioInterval } from "./intervals.ts";

const withWindows = (rates: readonly number[], changes: Partial<LoadPoint> = {}): LoadPoint => {
  const point = testLoadPoint();
  const windows = rates.map((imagesPerSecond) => ({ ...point.windows[0]!, imagesPerSecond }));
  const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
  return { ...point, windows, measuredWindows: rates.length, imagesPerSecond: mean, ...changes };
};

test("the ratio of a load point to itself is 1 for every metric", () => {
  const point = testLoadPoint();
  for (const metric of ["throughput", "p50", "p95", "p99"] as const) {
    const interval = ratioInterval(point, point, metric)!;
    expect(interval.ratio).toBe(1);
    expect(differs(interval)).toBe(false);
  }
});

test("half the rate and twice the latency are significant differences", () => {
  const [fast, slow] = [testLoadPoint(), testLoadPoint({ slower: 2 })];
  const rate = ratioInterval(fast, slow, "throughput")!;
  expect(rate.ratio).toBeCloseTo(0.5, 1);
  expect(rate.high).toBeLessThan(0.6);
  const p50 = ratioInterval(fast, slow, "p50")!;
  expect(p50.low).toBeGreaterThan(1.8);
});

test("differing windows widen the interval", () => {
  const steady = ratioInterval(
    withWindows([99, 100, 101]),
    withWindows([99, 100, 101]),
    "throughput",
  )!;
  const wild = ratioInterval(
    withWindows([60, 100, 140]),
    withWindows([60, 100, 140]),
    "throughput",
  )!;
  expect(wild.high - wild.low).toBeGreaterThan(5 * (steady.high - steady.low));
});

test("with three windows the interval ranges from the slowest to the fastest", () => {
  const { low, high } = ratioInterval(
    withWindows([100, 100, 100]),
    withWindows([90, 100, 110]),
    "throughput",
  )!;
  expect(low).toBeCloseTo(0.9, 2);
  expect(high).toBeCloseTo(1.1, 2);
});

test("the interval of a median of many requests is not narrower than the variation of its windows", () => {
  const wild = withWindows([60, 100, 140]);
  const { low, high } = ratioInterval(wild, wild, "p50")!;
  expect(high / low).toBeGreaterThan(1.5);
});

test("a percentile of few requests has a wider interval than one of many", () => {
  const of = (count: number) =>
    withWindows([100, 100, 100], {
      histogram: Array.from({ length: 50 }, (_, i) => [5_000 + i * 100, count] as [number, number]),
    });
  const width = (count: number) => {
    const { low, high } = ratioInterval(of(count), of(count), "p95")!;
    return high - low;
  };
  expect(width(1)).toBeGreaterThan(2 * width(200));
});

test("a p99 of too few requests has no interval", () => {
  const point = testLoadPoint();
  const few = { ...point, latencyMs: { ...point.latencyMs!, p99Reliable: false } };
  expect(figureOf(few, "p99")).toBeUndefined();
  expect(ratioInterval(few, few, "p99")).toBeUndefined();
});

test("one window has no interval", () => {
  expect(ratioInterval(withWindows([100]), withWindows([100, 100]), "throughput")).toBeUndefined();
});

test("the interval depends only on the load points and the seed", () => {
  const [a, b] = [testLoadPoint(), testLoadPoint({ slower: 1.1 })];
  expect(ratioInterval(a, b, "p95")).toEqual(ratioInterval(a, b, "p95"));
  expect(ratioInterval(a, b, "p95", 1)).not.toEqual(ratioInterval(a, b, "p95", 99));
});

test("several pairs together have a narrower interval than one", () => {
  const pairs = [1, 4, 8, 16, 32].map(
    (batch) => [testLoadPoint({ batch }), testLoadPoint({ batch, slower: 1.2 })] as const,
  );
  const one = ratioInterval(...pairs[0]!, "throughput")!;
  const all = meanRatio(pairs, "throughput")!;
  expect(all.ratio).toBeCloseTo(1 / 1.2, 2);
  expect(all.high - all.low).toBeLessThan(one.high - one.low);
});

test("95 % intervals contain the true ratio about as often as stated", () => {
  // normal noise of 3 %, three windows on each side, no difference: 95 % of the intervals should contain 1
  let seed = 12_345;
  const uniform = () => {
    seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
    return (seed >>> 8) / 2 ** 24;
  };
  const noise = () =>
    100 * (1 + 0.03 * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  const trials = 150;
  const held = Array.from({ length: trials }, () => {
    const draw = () => withWindows([noise(), noise(), noise()]);
    return !differs(ratioInterval(draw(), draw(), "throughput")!);
  }).filter(Boolean).length;
  expect(held / trials).toBeGreaterThan(0.85);
});
