import type { Cell } from "../src/bench-record.ts";
import { percentile, sortedLatencies } from "./latency.ts";
import type { TimedSample } from "./workers.ts";

/** What came in between two times. */
export interface LoadWindow {
  /**
   * From the last answer before it to its last answer: between these the work of its requests was done, so that the rate
   * does not depend on whether the last one came just before the end or just after.
   */
  readonly seconds: number;
  readonly good: readonly TimedSample[];
  readonly failed: readonly TimedSample[];
}

/** Below this many answers a p99 is the slowest of them, which no two windows have in common: it is not judged. */
export const judgedP99Samples = 100;

export interface WindowBounds {
  readonly startMs: number;
  readonly endMs: number;
  /** Of the last answer before the window; the start where there was none. */
  readonly lastDoneMs: number;
}

/** @param samples - Those that were done within the bounds. */
export function makeWindow(samples: readonly TimedSample[], bounds: WindowBounds): LoadWindow {
  const good = samples.filter(({ code }) => code === "");
  const lastMs = good.reduce((last, { doneMs }) => Math.max(last, doneMs), 0);
  return {
    seconds:
      (good.length === 0 ? bounds.endMs - bounds.startMs : lastMs - bounds.lastDoneMs) / 1_000,
    good,
    failed: samples.filter(({ code }) => code !== ""),
  };
}

export function requestsPerSecond({ good, seconds }: LoadWindow): number {
  return seconds > 0 ? good.length / seconds : 0;
}

/** The window, as the record has it. */
export function describeWindow(
  window: LoadWindow,
  imagesPerRequest: number,
): Cell["windows"][number] {
  return {
    seconds: window.seconds,
    requests: window.good.length,
    imagesPerSecond: requestsPerSecond(window) * imagesPerRequest,
    p99Ms: window.good.length === 0 ? undefined : percentile(sortedLatencies(window.good), 99),
    failed: window.failed.length,
  };
}

/** How far windows are from their mean; 0..1 and above. */
export interface Agreement {
  readonly throughputDeviation: number;
  /** Absent where a window has too few answers for a p99. */
  readonly p99Deviation?: number;
}

/** `undefined` where a window has no good answer: then nothing agrees. */
export function agreement(windows: readonly Cell["windows"][number][]): Agreement | undefined {
  if (windows.length === 0 || windows.some(({ requests }) => requests === 0)) return undefined;
  const p99s = windows.flatMap(({ p99Ms, requests }) =>
    p99Ms === undefined || requests < judgedP99Samples ? [] : [p99Ms],
  );
  return {
    throughputDeviation: deviation(windows.map(({ imagesPerSecond }) => imagesPerSecond)),
    ...(p99s.length === windows.length ? { p99Deviation: deviation(p99s) } : {}),
  };
}

export function agrees(found: Agreement | undefined, tolerance: number): boolean {
  return (
    found !== undefined &&
    found.throughputDeviation <= tolerance &&
    (found.p99Deviation ?? 0) <= tolerance
  );
}

/** Largest distance from the mean, as a part of the mean. */
function deviation(values: readonly number[]): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.max(...values.map((value) => Math.abs(value - mean))) / mean;
}
