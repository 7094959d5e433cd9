import { expect, test } from "vitest";
import type { TimedSample } from "./samples.ts";
import { describeWindow, type LoadWindow, makeWindow } from "./windows.ts";

const sample = (doneMs: number, latencyMs = 10, code = ""): TimedSample => ({
  dueMs: doneMs - latencyMs,
  sentMs: doneMs - latencyMs,
  doneMs,
  bytes: 0,
  code,
});
/** Images per second, with one image per request. */
const rateOf = (window: LoadWindow) => describeWindow(window, 1).imagesPerSecond;

test("the rate of a window is independent of where its boundaries fall between responses", () => {
  // one client, a response every 300 ms: at 900, 1200, 1500, 1800
  const window = makeWindow([sample(1_200), sample(1_500), sample(1_800)], 900, 2_000);
  expect(window.seconds).toBeCloseTo(0.9);
  expect(rateOf(window)).toBeCloseTo(1_000 / 300);
});

test("a window ends with its last response unless the gap after it is unusually long", () => {
  const every = (ms: number, count: number) =>
    Array.from({ length: count }, (_, i) => sample(900 + ms * (i + 1)));
  expect(makeWindow(every(100, 10), 900, 2_000)).toMatchObject({ seconds: 1, countedToMs: 1_900 });
  // a response every 10 ms, then none for 700 ms
  const stalled = makeWindow(every(10, 40), 900, 2_000);
  expect(stalled).toMatchObject({ seconds: 1.1, countedToMs: 2_000 });
  expect(rateOf(stalled)).toBeCloseTo(40 / 1.1);
});

test("the gap between batches is usual, however many responses arrive together", () => {
  // 32 responses every 300 ms
  const batches = [1_200, 1_500, 1_800].flatMap((ms) =>
    Array.from({ length: 32 }, () => sample(ms)),
  );
  expect(rateOf(makeWindow(batches, 900, 2_000))).toBeCloseTo(32 / 0.3);
});

test("a stall within a window does not make a stall at its end usual", () => {
  const responses = [...Array.from({ length: 40 }, (_, i) => sample(905 + 5 * i)), sample(1_400)];
  expect(makeWindow(responses, 900, 2_000).countedToMs).toBe(2_000);
});

test("a window without a response has its full length and no rate", () => {
  const window = makeWindow([sample(1_500, 10, "503")], 1_000, 2_000);
  expect(window.seconds).toBe(1);
  expect(describeWindow(window, 4)).toEqual({
    seconds: 1,
    requests: 0,
    imagesPerSecond: 0,
    p99Ms: undefined,
    failed: 1,
  });
});

test("failed requests are counted separately from responses", () => {
  const window = makeWindow([sample(1_500), sample(1_600, 10, "503"), sample(1_900)], 900, 2_000);
  expect(describeWindow(window, 4)).toMatchObject({ requests: 2, imagesPerSecond: 8, failed: 1 });
});
