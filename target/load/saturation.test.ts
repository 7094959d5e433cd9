import { expect, test } from "vitest";
import { type ClientWindow, clientUse, invalidReasons } from "./saturation.ts";
import { makeWindow } from "./windows.ts";

/** One second of two workers with the given CPU use and send delays. */
function windowOf(cores: readonly number[], lateMs: readonly number[], eventLoopDelayP99Ms = 0) {
  const samples = lateMs.map((late, i) => ({
    dueMs: i,
    sentMs: i + late,
    doneMs: 100 + i,
    bytes: 0,
    code: "",
  }));
  return {
    window: makeWindow(samples, 0, 1_000),
    start: { workers: cores.map(() => ({ cpuMs: 500, atMs: 0, eventLoopDelayP99Ms: 99 })) },
    end: {
      workers: cores.map((core) => ({
        cpuMs: 500 + 1_000 * core,
        atMs: 1_000,
        eventLoopDelayP99Ms,
      })),
    },
  } satisfies ClientWindow;
}
const openLoop = { kind: "open loop", arrivals: "constant", ratePerSecond: 50, seed: 0 } as const;
const calm = { workers: 1, busiestWorkerCores: 0.2, eventLoopDelayP99Ms: 1, delayedSends: 0 };

test("the maximum CPU use and send delay over the workers are reported", () => {
  const use = clientUse([windowOf([0.3, 0.8], [0], 2), windowOf([0.3, 0.8], [0], 7)], undefined);
  expect(use).toEqual({
    workers: 2,
    busiestWorkerCores: expect.closeTo(0.8),
    eventLoopDelayP99Ms: 7,
    delayedSends: 0,
  });
});

test("a send is late after a tenth of the mean interval, at least one millisecond", () => {
  const late = windowOf([0.1], [0, 0.9, 1.5, 2.5]);
  expect(clientUse([late], openLoop).delayedSends).toBe(0.25);
  expect(clientUse([late], { ...openLoop, ratePerSecond: 10_000 }).delayedSends).toBe(0.5);
});

test("a send is not late while its delay is less than a tenth of the median latency", () => {
  const late = windowOf([0.1], [0, 0.9, 1.5, 2.5]);
  expect(clientUse([late], openLoop, 30).delayedSends).toBe(0);
  expect(clientUse([late], openLoop, 24).delayedSends).toBe(0.25);
});

test("a closed loop has no late sends", () => {
  expect(clientUse([windowOf([0.1], [0, 5])], undefined).delayedSends).toBe(0);
});

test("the figures of an idle generator are valid", () => {
  expect(invalidReasons(calm, 20, 100)).toEqual([]);
});

test("each reason why the generator was the bottleneck is a sentence", () => {
  const busy = {
    workers: 1,
    busiestWorkerCores: 0.97,
    eventLoopDelayP99Ms: 23,
    delayedSends: 0.032,
  };
  expect(invalidReasons(busy, 20, 0)).toEqual([
    "No request succeeded.",
    "The load generator was the bottleneck: its busiest process used 0.97 of a core.",
    "The load generator processed responses late: the p99 of its event loop delay was 23.0 ms.",
    "The load generator sent late: 3.2 % of the requests were sent after they were due.",
  ]);
});

test("a delay that is small compared with the latency is accepted", () => {
  expect(invalidReasons({ ...calm, eventLoopDelayP99Ms: 23 }, 500, 100)).toEqual([]);
});
