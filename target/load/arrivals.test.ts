import { expect, test } from "vitest";
import { arrivals, shareOf } from "./arrivals.ts";

const first = (times: Iterable<number>, count: number): readonly number[] => {
  const firstTimes: number[] = [];
  for (const time of times) {
    firstTimes.push(time);
    if (firstTimes.length === count) break;
  }
  return firstTimes;
};
const load = { kind: "open loop", ratePerSecond: 100, seed: 7 } as const;

test("constant arrivals have equal intervals from the start", () => {
  expect(first(arrivals({ ...load, arrivals: "constant" }), 4)).toEqual([0, 10, 20, 30]);
});

test("Poisson arrivals have the configured rate and exponential intervals", () => {
  const times = first(arrivals({ ...load, arrivals: "poisson" }), 20_000);
  const gaps = times.map((time, i) => time - (times[i - 1] ?? 0));
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length;
  const variance = gaps.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gaps.length;
  expect(mean).toBeCloseTo(10, 0);
  expect(Math.sqrt(variance) / mean).toBeCloseTo(1, 1);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(0);
});

test("arrival times depend on the seed only", () => {
  const times = (seed: number) => first(arrivals({ ...load, arrivals: "poisson", seed }), 50);
  expect(times(7)).toEqual(times(7));
  expect(times(7)).not.toEqual(times(8));
});

test("the combined arrival times are independent of the number of workers", () => {
  const all = () => arrivals({ ...load, arrivals: "poisson" });
  for (const workers of [1, 2, 3]) {
    const shares = Array.from({ length: workers }, (_, i) =>
      first(shareOf(all(), i, workers), 60 / workers),
    );
    expect(shares.flat().sort((a, b) => a - b)).toEqual(first(all(), 60));
  }
});
