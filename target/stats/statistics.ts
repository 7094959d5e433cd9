import jstat from "jstat";

const { jStat } = jstat;

/** Minimum number of samples for a reliable p99; below it, a p99 depends on one or two requests. */
export const p99MinimumSamples = 500;

/** Histogram of latencies in microseconds, rounded to three significant digits; ascending. */
export function latencyHistogram(
  latenciesMs: ArrayLike<number>,
): readonly (readonly [us: number, count: number])[] {
  const counts = new Map<number, number>();
  for (const ms of Array.from(latenciesMs)) {
    const us = Number(Math.max(1, Math.round(ms * 1_000)).toPrecision(3));
    counts.set(us, (counts.get(us) ?? 0) + 1);
  }
  return [...counts].sort(([a], [b]) => a - b);
}

/** Returns the smallest latency that at least the given share (0..1) of the requests do not exceed; NaN for an empty histogram. */
export function histogramQuantile(
  histogram: readonly (readonly [us: number, count: number])[],
  share: number,
): number {
  let remaining = share * histogram.reduce((sum, [, count]) => sum + count, 0);
  for (const [us, count] of histogram) {
    remaining -= count;
    if (remaining <= 1e-9) return us;
  }
  return histogram.at(-1)?.[0] ?? Number.NaN;
}

/** Arithmetic mean; 0 without values. */
export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Median; the mean of the two middle values for an even number. */
export function median(values: readonly number[]): number | undefined {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle];
  if (upper === undefined) return undefined;
  return sorted.length % 2 === 1 ? upper : (upper + sorted[middle - 1]!) / 2;
}

/** Quantile of a sample, interpolated linearly between its values; NaN without values. */
export function quantile(values: readonly number[], part: number): number {
  return values.length === 0 ? Number.NaN : jStat.percentile([...values], part);
}

/** Cosine of the angle between two vectors; NaN for a zero vector. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return dot(a, b) / (norm(a) * norm(b));
}

/** ‖a − b‖ / ‖b‖, which also covers the length that a cosine ignores. */
export function relativeDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < b.length; i++) sum += ((a[i] ?? Number.NaN) - (b[i] ?? 0)) ** 2;
  return Math.sqrt(sum) / norm(b);
}

export function norm(a: ArrayLike<number>): number {
  return Math.sqrt(dot(a, a));
}

function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] ?? 0) * (b[i] ?? Number.NaN);
  return sum;
}
