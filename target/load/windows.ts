import { percentile, sortedLatencies } from "./latency.ts";
import type { Round } from "./round.ts";
import { isGood, type TimedSample } from "./samples.ts";

/** Responses between two times. */
export interface LoadWindow {
  /**
   * Time from the end of the previous window's count to the last response of this one, so that the rate does not depend on
   * whether a response arrives just before or just after the end. After a long silence, the time up to the end.
   */
  readonly seconds: number;
  /** End of {@link seconds}. */
  readonly countedToMs: number;
  readonly good: readonly TimedSample[];
  readonly failed: readonly TimedSample[];
}

/** Number of mean gaps between responses after which a silence is a stall. */
const maxSilenceGaps = 2;

/**
 * @param samples - Requests that ended within the window.
 * @param sinceMs - End of the previous window's count.
 */
export function makeWindow(
  samples: readonly TimedSample[],
  sinceMs: number,
  endMs: number,
): LoadWindow {
  const good = samples.filter(isGood);
  const times = Float64Array.from(good, ({ doneMs }) => doneMs).sort();
  const lastMs = times.at(-1) ?? sinceMs;
  const isSilent = !(endMs - lastMs <= maxSilenceGaps * expectedGap(times, sinceMs));
  const countedToMs = isSilent ? endMs : lastMs;
  return {
    seconds: (countedToMs - sinceMs) / 1_000,
    countedToMs,
    good,
    failed: samples.filter((sample) => !isGood(sample)),
  };
}

/**
 * Expected length of the gap between responses at a random moment. Responses that arrive in batches have long gaps; a single
 * stall among many gaps has little weight. NaN without a gap.
 */
function expectedGap(times: Float64Array, sinceMs: number): number {
  let squares = 0;
  let last = sinceMs;
  for (const time of times) {
    squares += (time - last) ** 2;
    last = time;
  }
  return squares / (last - sinceMs);
}

/**
 * Window for the record.
 *
 * @param requests - Requests of its p99; until late responses have arrived, those that ended in the window.
 */
export function describeWindow(
  window: LoadWindow,
  imagesPerRequest: number,
  requests: readonly TimedSample[] = window.good,
): Round["windows"][number] {
  const { seconds, good, failed } = window;
  return {
    seconds,
    requests: good.length,
    imagesPerSecond: seconds > 0 ? (good.length / seconds) * imagesPerRequest : 0,
    p99Ms: requests.length === 0 ? undefined : percentile(sortedLatencies(requests), 99),
    failed: failed.length,
  };
}
