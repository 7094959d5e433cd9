import { describe, expect, test } from "vitest";
import type { Round } from "../../target/load/round.ts";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { stabilityOf, trendOf } from "./drift.ts";
import { normals, simulatedRounds } from "./test-rounds.ts";

const [template] = testLoadPoint().rounds;

/** Rounds with windows of these rates. */
const roundsOf = (...rates: readonly (readonly number[])[]): Round[] =>
  rates.map((own, i) => ({
    ...template!,
    round: i + 1,
    windows: own.map((imagesPerSecond) => ({ ...template!.windows[0]!, imagesPerSecond })),
    imagesPerSecond: own.reduce((sum, rate) => sum + rate, 0) / own.length,
  }));

test("the trend of a regression matches its table: 1, 2, 4, 8 doubles per step", () => {
  expect(trendOf([[1, 2, 4, 8]])).toEqual({ change: expect.closeTo(7), pValue: expect.closeTo(0) });
  // slope 0.1, residual squares 0.012, standard error of the slope 0.02: t = 5 with 3 degrees of freedom
  const logs = [0.05, 0.05, 0.25, 0.25, 0.45];
  expect(trendOf([logs.map(Math.exp)])!.pValue).toBeCloseTo(0.0154, 4);
});

test("sequences of different levels share a trend", () => {
  expect(
    trendOf([
      [100, 110, 121],
      [10, 11, 12.1],
      [1, 1.1, 1.21],
    ])!.change,
  ).toBeCloseTo(0.21);
});

describe("a drifting sequence is not stable", () => {
  test.each([
    ["within its rounds", roundsOf([100, 96, 92], [101, 97, 93], [99, 95, 92], [100, 97, 92])],
    ["from round to round", roundsOf([100, 101], [95, 96], [90, 91], [85, 86], [80, 81])],
    ["in the windows of its only round", roundsOf([100, 95, 90, 86, 81, 77])],
  ])("%s", (_where, rounds) => {
    expect(stabilityOf(rounds).verdict).toBe("drifting");
  });

  test("even if consecutive windows agree within 10 %", () => {
    expect(stabilityOf(roundsOf([108, 106, 104, 102, 100, 98, 96, 94])).verdict).toBe("drifting");
  });
});

test("noise without a trend and a trend of less than 5 % are stable", () => {
  expect(stabilityOf(roundsOf([100, 90, 105], [80, 95, 90], [120, 100, 110])).verdict).toBe(
    "stable",
  );
  expect(stabilityOf(roundsOf([100, 101, 102, 103], [100, 101, 102, 103])).verdict).toBe("stable");
});

test("few windows of one round are too short to judge, as are incomplete rounds", () => {
  expect(stabilityOf(roundsOf([100, 100, 100])).verdict).toBe("short");
  const [first, ...others] = roundsOf([100, 101, 99], [100, 99, 101]);
  expect(stabilityOf([{ ...first!, outcome: "short" }, ...others]).verdict).toBe("short");
  expect(stabilityOf([{ ...first!, outcome: "interrupted" }, ...others]).verdict).toBe(
    "interrupted",
  );
});

test("at most 3 % of steady load points are called drifting", () => {
  const normal = normals(5);
  const verdicts = Array.from({ length: 2_000 }, () => {
    const noise = { between: 0.05, within: 0.05 };
    return simulatedRounds(testLoadPoint(), 5, noise, normal).stability.verdict;
  });
  const drifting = verdicts.filter((verdict) => verdict === "drifting").length;
  expect(drifting / verdicts.length).toBeLessThan(0.03);
});
