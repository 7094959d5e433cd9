import type { LoadPoint } from "../record/bench-record.ts";

/** Requests of a load: latencies of the successful ones, and the failed ones by code. */
export type Outcomes = Pick<LoadPoint, "histogram" | "errors">;

/**
 * Percentile of all requests that were due, in milliseconds, with failed and timed-out requests as censored values: each is later
 * than every success. `Infinity` if the percentile falls on one of them, so that with more than 1 % failed requests the p99 is
 * beyond every limit. NaN without requests.
 *
 * @param percent - 0..100; the smallest latency that at least this share of the requests does not exceed.
 */
export function censoredPercentile({ histogram, errors }: Outcomes, percent: number): number {
  const succeeded = successes(histogram);
  const due = succeeded + failures(errors);
  if (due === 0) return Number.NaN;
  const rank = Math.max(1, Math.ceil((percent / 100) * due));
  let count = 0;
  for (const [us, requests] of histogram) {
    count += requests;
    if (count >= rank) return us / 1_000;
  }
  return Number.POSITIVE_INFINITY;
}

/** Number of requests that succeeded within a limit; for goodput, divided by the measured time. */
export function succeededWithin(
  { histogram }: Pick<Outcomes, "histogram">,
  limitMs: number,
): number {
  return successes(histogram.filter(([us]) => us <= limitMs * 1_000));
}

/** Number of failed requests. */
export function failures(errors: Outcomes["errors"]): number {
  return Object.values(errors).reduce((sum, count) => sum + count, 0);
}

function successes(histogram: Outcomes["histogram"]): number {
  return histogram.reduce((sum, [, count]) => sum + count, 0);
}
