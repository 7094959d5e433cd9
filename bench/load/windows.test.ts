import { expect, test } from "vitest";
import { agreement, agrees, describeWindow, makeWindow, requestsPerSecond } from "./windows.ts";
import type { TimedSample } from "./workers.ts";

const sample = (doneMs: number, latencyMs = 10, code = ""): TimedSample => ({
  dueMs: doneMs - latencyMs,
  sentMs: doneMs - latencyMs,
  doneMs,
  bytes: 0,
  code,
});
const bounds = { startMs: 1_000, endMs: 2_000, lastDoneMs: 900 };

const described = (requests: number, imagesPerSecond: number, p99Ms: number) => ({
  seconds: 1,
  requests,
  imagesPerSecond,
  p99Ms,
  failed: 0,
});

test("the rate of a window is that between answers, wherever its ends are", () => {
  // one client, an answer every 300 ms: at 900, 1200, 1500, 1800
  const window = makeWindow([sample(1_200), sample(1_500), sample(1_800)], bounds);
  expect(window.seconds).toBeCloseTo(0.9);
  expect(requestsPerSecond(window)).toBeCloseTo(1_000 / 300);
});

test("a window without an answer is as long as its ends are apart, and has no rate", () => {
  const window = makeWindow([sample(1_500, 10, "503")], bounds);
  expect(window.seconds).toBe(1);
  expect(describeWindow(window, 4)).toEqual({
    seconds: 1,
    requests: 0,
    imagesPerSecond: 0,
    p99Ms: undefined,
    failed: 1,
  });
});

test("failed requests are counted beside the answers", () => {
  const window = makeWindow([sample(1_500), sample(1_600, 10, "503"), sample(1_900)], bounds);
  expect(describeWindow(window, 4)).toMatchObject({ requests: 2, imagesPerSecond: 8, failed: 1 });
});

test("windows agree when throughput and p99 are near their means", () => {
  const found = agreement([
    described(200, 95, 10),
    described(200, 105, 11),
    described(200, 100, 9),
  ]);
  expect(found?.throughputDeviation).toBeCloseTo(0.05);
  expect(found?.p99Deviation).toBeCloseTo(0.1);
  expect(agrees(found, 0.11)).toBe(true);
  expect(agrees(found, 0.09)).toBe(false);
});

test("a p99 of few answers is not judged", () => {
  const found = agreement([described(200, 100, 10), described(99, 100, 1_000)]);
  expect(found).toEqual({ throughputDeviation: 0 });
});

test("windows do not agree when one has no answer", () => {
  expect(agrees(agreement([described(0, 0, 0), described(0, 0, 0)]), 1)).toBe(false);
});
