import { expect, test } from "vitest";
import { latencyHistogram } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { confirmedTrial, type SloSearch } from "../record/slo-search.ts";
import { testLoadPoint } from "../report/test-bench-record.ts";
import { type JudgedLoad, judgeTrial } from "./judge-trial.ts";
import { searchSlo, trialWindows } from "./search-slo.ts";
import { highestRate, simulatedResponseTimes } from "./test-deterministic-queue.ts";

const slo = { percentile: "p99", limitMs: 50 } as const;
const offered = { purpose: "search", ratePerSecond: 100, seed: 1 } as const;

/** 1,000 requests in 10 s, all in 20 ms. */
function load(changes: Partial<JudgedLoad> = {}): JudgedLoad {
  return {
    seconds: 10,
    samples: 1_000,
    requestsPerSecond: 100,
    histogram: [[20_000, 1_000]],
    errors: {},
    invalid: [],
    ...changes,
  };
}

test("a trial within the SLO is met, with all responses as goodput", () => {
  expect(judgeTrial(slo, offered, load())).toEqual({
    ...offered,
    seconds: 10,
    requests: 1_000,
    failed: 0,
    requestsPerSecond: 100,
    goodputPerSecond: 100,
    achievedShare: 1,
    percentileMs: 20,
    verdict: "met",
  });
});

test("responses after the limit are no goodput and count against the percentile", () => {
  const late = load({
    histogram: [
      [20_000, 980],
      [60_000, 20],
    ],
  });
  expect(judgeTrial(slo, offered, late)).toMatchObject({
    requestsPerSecond: 100,
    goodputPerSecond: 98,
    percentileMs: 60,
    verdict: "latency",
  });
});

test("failed requests count against the percentile: 0.9 % leave it met, 1.1 % do not", () => {
  const failing = (failed: number) =>
    judgeTrial(
      { percentile: "p99", limitMs: 50 },
      offered,
      load({
        samples: 1_000 - failed,
        histogram: [[20_000, 1_000 - failed]],
        errors: { "503": failed },
      }),
    );
  expect(failing(9)).toMatchObject({ failed: 9, percentileMs: 20, verdict: "met" });
  const many = failing(11);
  expect(many).toMatchObject({ failed: 11, achievedShare: 0.989, verdict: "achieved" });
  expect(many.percentileMs).toBeUndefined();
});

test("responses that fall behind the requests reject a rate whose percentile is still within the SLO", () => {
  const slow = load({ requestsPerSecond: 95 });
  expect(judgeTrial({ percentile: "p50", limitMs: 50 }, offered, slow).verdict).toBe("achieved");
  // five requests can be outstanding within the SLO
  const outstanding = load({ requestsPerSecond: 98.6 });
  expect(judgeTrial(slo, offered, outstanding).verdict).toBe("met");
});

test("an invalid client rejects a rate that meets the SLO", () => {
  expect(judgeTrial(slo, offered, load({ invalid: ["Too slow."] }))).toMatchObject({
    verdict: "client",
    invalid: ["Too slow."],
  });
});

test("a trial has a fixed number of windows, and enough requests for the percentile at low rates", () => {
  const settings = { windowSeconds: 2, windows: 1, rounds: 5 };
  expect(trialWindows(settings, slo, 1_000).windows).toBe(5);
  // 500 requests for a p99 at 10 per second, 100 for a p95
  expect(trialWindows(settings, slo, 10).windows).toBe(25);
  expect(trialWindows(settings, { ...slo, percentile: "p95" }, 10).windows).toBe(5);
});

const queue = { serviceMs: 25, servers: 16 };
const theory = highestRate(queue, 99, slo.limitMs);

function searchOf(changes: Partial<SloSearch> = {}): SloSearch {
  return {
    environment: "one",
    service: "embed",
    endpoint: "embed-http",
    payload: "jpeg",
    serialization: "binary",
    imagesPerRequest: 1,
    slo,
    arrivals: "poisson",
    tolerance: 0.02,
    // the capacity of the queue
    closedLoopPerSecond: 640,
    trials: [],
    ...changes,
  };
}

function simulated(
  rate: { readonly ratePerSecond: number; readonly seed: number },
  seconds: number,
): LoadPoint {
  const times = simulatedResponseTimes(queue, rate, seconds);
  return testLoadPoint(
    {},
    {
      seconds,
      samples: times.length,
      requestsPerSecond: times.length / seconds,
      histogram: latencyHistogram(times).map(([us, count]) => [us, count]),
      errors: {},
      invalid: [],
    },
  );
}

test("the formula for M/D/c agrees with the simulated queue", () => {
  const offered = { ratePerSecond: theory, seed: 5 };
  const times = [...simulatedResponseTimes(queue, offered, 400)].sort((a, b) => a - b);
  expect(times[Math.ceil(0.99 * times.length) - 1]).toBeGreaterThan(48);
  expect(times[Math.ceil(0.99 * times.length) - 1]).toBeLessThan(52);
});

test("finds the theoretical rate of a queue within 5 %, for each of five seeds", async () => {
  for (let seed = 1; seed <= 5; seed++) {
    const search = searchOf();
    await searchSlo(search, { seed: 100 * seed }, async (rate) => simulated(rate, 120));
    const ratio = (confirmedTrial(search)?.ratePerSecond ?? 0) / theory;
    expect(ratio, `seed ${seed}`).toBeGreaterThan(0.95);
    expect(ratio, `seed ${seed}`).toBeLessThan(1.05);
  }
});

test("the confirmation has other arrival times and is the last trial", async () => {
  const search = searchOf();
  await searchSlo(search, { seed: 7 }, async (rate) => simulated(rate, 20));
  const seeds = search.trials.map(({ purpose, seed }) => `${purpose} ${seed}`);
  expect(new Set(seeds.slice(0, -1).filter((text) => text.startsWith("search")))).toEqual(
    new Set(["search 7"]),
  );
  expect(search.trials.at(-1)).toEqual(confirmedTrial(search));
  expect(confirmedTrial(search)?.seed).toBeGreaterThan(7);
});

test("a rate that is not confirmed is lowered by the tolerance, a bounded number of times", async () => {
  const search = searchOf();
  await searchSlo(search, { seed: 1 }, async (rate, purpose) =>
    simulated({ ...rate, ratePerSecond: purpose === "search" ? 300 : 700 }, 20),
  );
  const confirmations = search.trials.filter(({ purpose }) => purpose === "confirmation");
  const [first, second, third] = confirmations.map(({ ratePerSecond }) => ratePerSecond);
  expect(confirmations).toHaveLength(8);
  expect([second! / first!, third! / second!].map((ratio) => ratio.toFixed(2))).toEqual([
    "0.98",
    "0.98",
  ]);
  expect(confirmedTrial(search)).toBeUndefined();
});

test("an invalid confirmation is repeated at the same rate", async () => {
  const search = searchOf();
  let confirmations = 0;
  await searchSlo(search, { seed: 1 }, async (rate, purpose) => ({
    ...simulated({ ...rate, ratePerSecond: 300 }, 20),
    invalid: purpose === "confirmation" && confirmations++ === 0 ? ["Late."] : [],
  }));
  const [first, second] = search.trials.slice(-2);
  expect([first?.verdict, second?.verdict]).toEqual(["client", "met"]);
  expect(second?.ratePerSecond).toBe(first?.ratePerSecond);
});

test("a trial with an invalid client is repeated once at the same rate", async () => {
  const search = searchOf();
  let measured = 0;
  await searchSlo(search, { seed: 1 }, async (rate) => ({
    ...simulated(rate, 20),
    invalid: measured++ === 0 ? ["The load generator sent late."] : [],
  }));
  expect(search.trials.slice(0, 2).map(({ verdict }) => verdict)).toEqual(["client", "met"]);
  expect(search.trials[0]?.ratePerSecond).toBe(search.trials[1]?.ratePerSecond);
});

test("an SLO below the service time ends without a confirmation", async () => {
  const search = searchOf({ slo: { percentile: "p50", limitMs: 20 } });
  await searchSlo(search, { seed: 1 }, async (rate) => simulated(rate, 20));
  expect(search.trials.length).toBeLessThanOrEqual(8);
  expect(search.trials.every(({ verdict }) => verdict === "latency")).toBe(true);
});
