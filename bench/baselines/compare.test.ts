import { expect, test } from "vitest";
import { compare } from "./compare.ts";
import { ceilingBatchSizes, loads, type SubjectName } from "./loads.ts";
import type { BenchRun } from "./record.ts";

const run = (
  subject: SubjectName,
  round: number,
  imagesPerSecond: number,
  more: Partial<BenchRun> = {},
): BenchRun => ({ load: "c16", subject, round, imagesPerSecond, failures: {}, ...more });

const latency = (p95Ms: number): BenchRun["latency"] => ({
  count: 10,
  p50Ms: 1,
  p95Ms,
  p99Ms: 1,
  maxMs: 1,
  p99Reliable: false,
  histogram: [],
});

test("computes the median of the ratios of runs of the same round", () => {
  const { rows } = compare({
    runs: [
      run("ceiling", 1, 100),
      run("server", 1, 99),
      run("server", 2, 45),
      run("ceiling", 2, 50),
      run("ceiling", 3, 50),
      run("server", 3, 49),
    ],
  });
  expect(rows[0]?.ofCeiling).toEqual({
    value: 0.98,
    rounds: [0.99, 0.9, 0.98],
    target: { bound: "at least", value: 0.97 },
    passed: true,
  });
});

test("reports a missed target as a sentence", () => {
  const { missedTargets } = compare({
    runs: [
      run("server", 1, 60, { latency: latency(80) }),
      run("baseline", 1, 50, { latency: latency(100) }),
    ],
  });
  expect(missedTargets).toEqual([
    "10 KB JPEG, batch 1, concurrency 16: images/s as a ratio to the baseline must be at least 1.3, got 1.2",
    "10 KB JPEG, batch 1, concurrency 16: p95 as a ratio to the baseline must be at most 0.7, got 0.8",
  ]);
});

test("counts a failed request as a missed target", () => {
  const { rows, missedTargets } = compare({
    runs: [run("server", 1, 60, { failures: { "429": 3 } })],
  });
  expect(rows[0]?.failures).toBe(3);
  expect(missedTargets).toEqual(["10 KB JPEG, batch 1, concurrency 16: 3 requests failed"]);
});

test("computes no ratio for a round that lacks one of the two", () => {
  const { rows } = compare({ runs: [run("server", 1, 60), run("ceiling", 2, 60)] });
  expect(rows[0]?.ofCeiling).toBeUndefined();
});

test("compares the time to ready with the creation of the session", () => {
  const { facts } = compare({
    runs: [
      run("ceiling", 1, 100, { createMs: 1_000, readyMs: 1_200 }),
      run("server", 1, 99, { readyMs: 1_500, residentMB: 500, residentAfterMB: 800 }),
    ],
  });
  const found = (name: string) => facts.find((fact) => fact.name === name);
  expect(found("process start to ready ÷ session creation")).toMatchObject({
    value: 1.5,
    passed: false,
  });
  expect(found("resident memory after load")).toMatchObject({ value: 800, passed: true });
});

test("the ceiling of a load is measured at batch sizes that its clients can fill", () => {
  const sizes = Object.fromEntries(loads.map((load) => [load.id, ceilingBatchSizes(load)]));
  expect(sizes).toMatchObject({
    single: [1],
    "12mp": [1, 2, 4],
    photos: [1, 4, 8],
    c16: [1, 8, 16],
    batch32: [32],
  });
});
