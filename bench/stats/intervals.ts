import jstat from "jstat";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { LoadPoint } from "../record/bench-record.ts";
import { type ComparedMetric, metricOf } from "../record/metrics.ts";
import { mean } from "./statistics.ts";

/**
 * Bootstrap confidence intervals of the ratio of two load points. Pure and seeded: the same records give the same intervals.
 *
 * Throughput: the measured windows are resampled. Percentiles: the histogram is resampled (by the distribution of the k-th
 * order statistic of n uniform numbers, which avoids n draws) and the variation between windows is added, because requests
 * of one second are not independent: the histogram alone would give far too narrow intervals.
 *
 * With few windows a percentile interval is too narrow and is expanded (Hesterberg 2015, "What Teachers Should Know About
 * the Bootstrap", section 5.3); with three windows it ranges from the slowest to the fastest.
 */

/** Ratio with its 95 % confidence interval. */
export interface Interval {
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

const { jStat } = jstat;
export const confidence = 0.95;
const draws = 2_000;

/** Value of a metric; absent if it was not measured or is not reliable. */
export function figureOf(point: LoadPoint, metric: ComparedMetric): number | undefined {
  const { read, caution } = metricOf(metric);
  const value = read(point);
  return value === undefined || !(value > 0) || caution?.(point) !== undefined ? undefined : value;
}

/**
 * Ratio `b` / `a`; `undefined` if one lacks the metric or has fewer than two windows.
 *
 * @param seed - Seed of the random numbers.
 */
export function ratioInterval(
  a: LoadPoint,
  b: LoadPoint,
  metric: ComparedMetric,
  seed = 1,
): Interval | undefined {
  const from = figureOf(a, metric);
  const to = figureOf(b, metric);
  if (from === undefined || to === undefined) return undefined;
  const [drawA, drawB] = [logDraws(a, metric, "a", seed), logDraws(b, metric, "b", seed)];
  if (drawA === undefined || drawB === undefined) return undefined;
  const windows = Math.min(measured(a).length, measured(b).length);
  return intervalOf(
    to / from,
    drawB.map((value, i) => value - (drawA[i] ?? 0)),
    windows,
  );
}

/**
 * Geometric mean of the ratios of several pairs: the change of an endpoint.
 */
export function meanRatio(
  pairs: readonly (readonly [a: LoadPoint, b: LoadPoint])[],
  metric: ComparedMetric,
  seed = 1,
): Interval | undefined {
  const logs: number[][] = [];
  const ratios: number[] = [];
  let windows = Number.POSITIVE_INFINITY;
  for (const [a, b] of pairs) {
    const [from, to] = [figureOf(a, metric), figureOf(b, metric)];
    const drawA = logDraws(a, metric, "a", seed);
    const drawB = logDraws(b, metric, "b", seed);
    if (from === undefined || to === undefined || drawA === undefined || drawB === undefined) {
      continue;
    }
    ratios.push(Math.log(to / from));
    logs.push(drawB.map((value, j) => value - (drawA[j] ?? 0)));
    windows = Math.min(windows, measured(a).length, measured(b).length);
  }
  if (ratios.length === 0) return undefined;
  const together = Array.from({ length: draws }, (_, j) => mean(logs.map((log) => log[j] ?? 0)));
  return intervalOf(Math.exp(mean(ratios)), together, windows);
}

/** Returns whether a difference is significant. */
export function differs({ low, high }: Interval): boolean {
  return low > 1 || high < 1;
}

function measured(point: LoadPoint): LoadPoint["windows"] {
  return point.measuredWindows === 0 ? [] : point.windows.slice(-point.measuredWindows);
}

/** Draws per load point, shared by the ratios of the load point and of its endpoint. */
const drawn = new WeakMap<LoadPoint, Map<string, number[] | undefined>>();

/**
 * Draws of ln(figure) minus its estimate.
 *
 * @param side - Side of the ratio, because the same load point on both sides must be drawn independently.
 */
function logDraws(
  point: LoadPoint,
  metric: ComparedMetric,
  side: "a" | "b",
  seed: number,
): number[] | undefined {
  const known = drawn.get(point) ?? new Map<string, number[] | undefined>();
  drawn.set(point, known);
  const key = `${metric} ${side} ${seed}`;
  if (!known.has(key)) known.set(key, freshDraws(point, metric, hash(`${point.id} ${key}`)));
  return known.get(key);
}

/** FNV-1a, 32 bits. */
function hash(text: string): number {
  let value = 2_166_136_261;
  for (const character of text) value = Math.imul(value ^ character.charCodeAt(0), 16_777_619);
  return value;
}

function freshDraws(point: LoadPoint, metric: ComparedMetric, seed: number): number[] | undefined {
  const rates = measured(point).map(({ imagesPerSecond }) => imagesPerSecond);
  if (rates.length < 2 || rates.some((rate) => !(rate > 0))) return undefined;
  const random = xoroshiro128plus(seed);
  const uniform = () => (random.next() >>> 0) / 2 ** 32;
  const drift = windowDraws(rates, uniform);
  const { compared } = metricOf(metric);
  if (compared === undefined || compared === "windows") return drift;
  const p99s = measured(point).flatMap(({ p99Ms }) => (p99Ms === undefined ? [] : [p99Ms]));
  // a faster window has lower latencies: their variation is the inverse of the rate's
  const wander =
    metric === "p99" && p99s.length === rates.length
      ? windowDraws(p99s, uniform)
      : drift.map((value) => -value);
  const latency = quantileDraws(point.histogram, compared.quantile, uniform);
  return latency?.map((value, i) => value + (wander[i] ?? 0));
}

/** ln of the mean of resampled windows, minus ln of their mean. */
function windowDraws(values: readonly number[], uniform: () => number): number[] {
  const average = mean(values);
  return Array.from({ length: draws }, () => {
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      sum += values[Math.floor(uniform() * values.length)] ?? average;
    }
    return Math.log(sum / values.length / average);
  });
}

/** ln of a quantile of the resampled histogram, minus ln of the quantile. */
function quantileDraws(
  histogram: LoadPoint["histogram"],
  quantile: number,
  uniform: () => number,
): number[] | undefined {
  const count = histogram.reduce((sum, [, n]) => sum + n, 0);
  if (count === 0) return undefined;
  const ends: number[] = [];
  let seen = 0;
  for (const [, n] of histogram) {
    seen += n;
    ends.push(seen / count);
  }
  const at = (part: number) => {
    let [low, high] = [0, ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ends[middle] ?? 1) >= part) high = middle;
      else low = middle + 1;
    }
    return histogram[low]?.[0] ?? 1;
  };
  const estimate = at(quantile);
  const rank = Math.min(count, Math.max(1, Math.ceil(quantile * count)));
  // the library uses the same seeded generator
  jStat.setRandom(uniform);
  return Array.from({ length: draws }, () =>
    Math.log(at(jStat.beta.sample(rank, count - rank + 1)) / estimate),
  );
}

function intervalOf(ratio: number, logs: readonly number[], windows: number): Interval {
  const sorted = [...logs].sort((a, b) => a - b);
  const tail = expandedTail(windows);
  const at = (part: number) =>
    sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(part * (sorted.length - 1))))] ?? 0;
  return { ratio, low: ratio * Math.exp(at(tail)), high: ratio * Math.exp(at(1 - tail)) };
}

/** Share of the draws to exclude at each end for a coverage of 95 % with few windows. */
function expandedTail(windows: number): number {
  const t = jStat.studentt.inv((1 + confidence) / 2, windows - 1);
  return jStat.normal.cdf(-t * Math.sqrt(windows / (windows - 1)), 0, 1);
}
