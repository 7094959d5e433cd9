import { expect, test } from "vitest";
import type { TuneResult } from "../record/tune-result.ts";
import {
  maxMeasurements,
  type Settings,
  searchSettings,
  type Variable,
} from "./coordinate-search.ts";

const variables: readonly Variable[] = [
  { setting: "instances", current: 1, values: [2, 4] },
  { setting: "batch", current: 32, values: [4, 8, 16] },
  { setting: "delay", current: 0, values: [1, 5] },
];

/** Rate with its best at 2 instances and batches of 8, whatever the delay; 5 % slower or faster by round, alike for all candidates. */
function rateOf({ instances = 1, batch = 32 }: Settings, round: number): number {
  const distance = Math.abs(Math.log2(instances / 2)) + Math.abs(Math.log2(batch / 8)) / 2;
  return (1 + 0.05 * Math.sin(round)) * 100 * 0.8 ** distance;
}

/** Noise of one measurement: 1 %, without a random generator. */
const noise = (round: number, key: string) => 1 + 0.01 * Math.sin(round * 7 + key.length * 13);

async function search(
  rate: (settings: Settings, round: number) => number | undefined = rateOf,
  rounds = 5,
) {
  const result: TuneResult = { environment: "one", varied: [], candidates: [] };
  const measured: string[] = [];
  await searchSettings(
    {
      ...{ variables, rounds, seed: 1 },
      async measure({ name, settings }, round) {
        measured.push(`${round} ${name}`);
        const value = rate(settings, round);
        return value === undefined
          ? undefined
          : { imagesPerSecond: value * noise(round, JSON.stringify(settings)) };
      },
      ordered: (all) => [...all].reverse(),
    },
    result,
  );
  const [present] = result.candidates;
  const best = result.candidates.find(({ name }) => name === result.best);
  return { result, measured, present, best };
}

test("finds the best settings, and the ratio to the present ones in rounds of their own", async () => {
  const { result, best } = await search();
  expect([result.verdict, best?.settings]).toEqual([
    "improved",
    { instances: 2, batch: 8, delay: 0 },
  ]);
  expect(result.varied).toEqual(["delay", "batch", "instances"]);
  const truth = 1 / 0.8 ** 2;
  expect(result.ratio?.low).toBeLessThan(truth);
  expect(result.ratio?.high).toBeGreaterThan(truth);
  const selecting = result.candidates
    .filter(({ name }) => name !== result.best && name !== "candidate-1")
    .flatMap(({ rounds }) => rounds.map(({ round }) => round));
  expect(Math.max(...selecting)).toBeLessThan(result.finalRound ?? 0);
});

test("ends a candidate in the third round, once its interval lies below the fastest", async () => {
  const { result } = await search();
  const slow = result.candidates.filter(
    ({ settings }) => settings.batch === 4 || settings.instances === 4,
  );
  expect(slow.map(({ rounds, ended }) => [rounds.length, ended?.reason])).toEqual(
    slow.map(() => [3, "slower"]),
  );
});

test("settings that change nothing are kept as they are", async () => {
  const { result } = await search(() => 100);
  expect([result.verdict, result.best, result.finalRound]).toEqual([
    "already best",
    "candidate-1",
    undefined,
  ]);
});

test("ends a candidate that misses the SLO at once, however fast it is in other rounds", async () => {
  const { result, best } = await search((settings, round) =>
    settings.batch === 8 && round % 2 === 0 ? 0 : rateOf(settings, round),
  );
  const missing = result.candidates.filter(({ settings }) => settings.batch === 8);
  expect(missing.map(({ ended }) => ended?.reason)).toEqual(["slo"]);
  expect(best?.settings.batch).not.toBe(8);
});

test("an invalid measurement is no missed SLO", async () => {
  const { best } = await search((settings, round) =>
    settings.batch === 8 && round % 4 === 0 ? undefined : rateOf(settings, round),
  );
  expect(best?.settings.batch).toBe(8);
});

test("settings that meet the SLO are better than present ones that do not", async () => {
  const { result, best } = await search((settings) => (settings.instances === 2 ? 50 : 0));
  expect([result.verdict, best?.settings.instances, result.ratio]).toEqual([
    "improved",
    2,
    undefined,
  ]);
});

test("without a rate within the SLO, no candidate is the best", async () => {
  expect((await search(() => 0)).result.verdict).toBe("slo missed");
});

test("ends after three invalid measurements of the present settings, and goes on after one", async () => {
  const { result, measured } = await search(() => undefined);
  expect([result.verdict, result.best, measured.length]).toEqual(["not measured", undefined, 3]);
  const late = await search((settings, round) =>
    round === 1 ? undefined : rateOf(settings, round),
  );
  expect(late.result.verdict).toBe("improved");
});

test("ends within its budget, also if no candidate is ended early", async () => {
  const budget = maxMeasurements({ variables, rounds: 5 });
  // every setting looks better in one step, but not in the final comparison
  const wide = (_settings: Settings, round: number) => 100 + 60 * Math.sin(round * 3);
  for (const rate of [rateOf, wide, () => 100]) {
    expect((await search(rate)).measured.length).toBeLessThanOrEqual(budget);
  }
  expect(budget).toBe(3 + 5 * (3 + 4 + 3) + 10);
});
