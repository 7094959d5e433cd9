import type { LoadPoint } from "../record/bench-record.ts";
import { mean } from "../stats/statistics.ts";
import { percentile, sortedLatencies } from "./latency.ts";
import type { TimedSample } from "./samples.ts";

/** What came in between two times. */
export interface LoadWindow {
  /**
   * From where the window before it was counted to up to its last answer: between these the work of its requests was done,
   * so that the rate does not depend on whether the last one came just before the end or just after. Up to the end where
   * the server had been silent for long by then.
   */
  readonly seconds: number;
  /** Where {@link seconds} end. */
  readonly countedToMs: number;
  readonly good: readonly TimedSample[];
  readonly failed: readonly TimedSample[];
}

/** Below this many answers a p99 is the slowest of them, which no two windows have in common: it is not judged. */
export const judgedP99Samples = 100;

/** A silence of so many usual gaps between answers is a stall. */
const longestSilence = 2;

export interface WindowBounds {
  /** Where the window before it was counted to. */
  readonly sinceMs: number;
  readonly endMs: number;
}

/** @param samples - Those that were done within the bounds. */
export function makeWindow(
  samples: readonly TimedSample[],
  { sinceMs, endMs }: WindowBounds,
): LoadWindow {
  const good = samples.filter(({ code }) => code === "");
  const times = Float64Array.from(good, ({ doneMs }) => doneMs).sort();
  const lastMs = times.at(-1) ?? sinceMs;
  const isSilent = !(endMs - lastMs <= longestSilence * usualGap(times, sinceMs));
  const countedToMs = isSilent ? endMs : lastMs;
  return {
    seconds: (countedToMs - sinceMs) / 1_000,
    countedToMs,
    good,
    failed: samples.filter(({ code }) => code !== ""),
  };
}

/**
 * Length of the gap between answers that a moment falls into, on average: answers that come many at a time, as those of a
 * batch do, leave long gaps, and one stall among many gaps is not usual. NaN without a gap.
 */
function usualGap(times: Float64Array, sinceMs: number): number {
  let squares = 0;
  let last = sinceMs;
  for (const time of times) {
    squares += (time - last) ** 2;
    last = time;
  }
  return squares / (last - sinceMs);
}

export function requestsPerSecond({ good, seconds }: LoadWindow): number {
  return seconds > 0 ? good.length / seconds : 0;
}

/**
 * The window, as the record has it.
 *
 * @param answers - Whose p99 it has; until the late ones are there, those that came in it.
 */
export function describeWindow(
  window: LoadWindow,
  imagesPerRequest: number,
  answers: readonly TimedSample[] = window.good,
): LoadPoint["windows"][number] {
  return {
    seconds: window.seconds,
    requests: window.good.length,
    imagesPerSecond: requestsPerSecond(window) * imagesPerRequest,
    p99Ms: answers.length === 0 ? undefined : percentile(sortedLatencies(answers), 99),
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
export function agreement(windows: readonly LoadPoint["windows"][number][]): Agreement | undefined {
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
  const average = mean(values);
  return Math.max(...values.map((value) => Math.abs(value - average))) / average;
}
