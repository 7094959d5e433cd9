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

test("computes the latency of one client above a run of the ceiling, by round", () => {
  const load = "dinov2-small:image:single";
  const ceiling = (round: number, p50Ms: number) =>
    run("ceiling", round, 1_000 / p50Ms, {
      load,
      batchSizes: [{ batchSize: 1, runs: 9, imagesPerSecond: 1, cpuMsPerImage: 1, p50Ms }],
    });
  const server = (round: number, p50Ms: number) =>
    run("server", round, 1, {
      load,
      latency: { ...latency(1)!, p50Ms },
      added: { ms: p50Ms / 10, from: "metrics" },
    });
  const { rows, missedTargets } = compare({
    runs: [
      ceiling(1, 20),
      server(1, 22),
      server(2, 45),
      ceiling(2, 40),
      ceiling(3, 20),
      server(3, 24),
    ],
  });
  expect(rows[0]?.addedMs).toMatchObject({ value: 4, rounds: [2, 5, 4], passed: false });
  expect(rows[0]?.outsideMs).toMatchObject({ value: 2.4, rounds: [2.2, 4.5, 2.4] });
  expect(missedTargets).toEqual([
    "dinov2-small, 10 KB JPEG, batch 1, concurrency 1: latency added to the ceiling must be at most 3 ms, got 4 ms",
  ]);
});

test("compares any tower with 16 clients with 0.95 of its ceiling", () => {
  const load = "openclip-vit-b32:text:c16";
  const { missedTargets } = compare({
    runs: [run("ceiling", 1, 100, { load }), run("server", 1, 94, { load })],
  });
  expect(missedTargets).toEqual([
    "openclip-vit-b32, text, batch 1, concurrency 16: images/s as a ratio to the ceiling must be at least 0.95, got 0.94",
  ]);
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
