/** Limits of a search for a rate. */
export interface SearchLimits {
  /** First upper bound, in requests per second. It is assumed to be too high, and tested only if the search approaches it. */
  readonly upperBound: number;
  /** Relative distance between the highest accepted and the lowest rejected rate at which the search ends, 0..1. */
  readonly tolerance: number;
  /** Rate below which the search ends without a result. */
  readonly lowest: number;
  readonly maxTrials: number;
}

/** Factor by which an upper bound that is accepted is raised. */
const raise = 1.5;

/**
 * Highest accepted rate, by bisection; `undefined` if none is accepted. The trials are bounded, so the result can be further from
 * the lowest rejected rate than the tolerance.
 *
 * @param accepts - Measures a rate and returns whether it is accepted. Expected to be false above some rate.
 */
export async function searchRate(
  { upperBound, tolerance, lowest, maxTrials }: SearchLimits,
  accepts: (ratePerSecond: number) => Promise<boolean>,
): Promise<number | undefined> {
  let [low, high] = [0, rounded(upperBound)];
  let isHighRejected = false;
  for (let trial = 0; trial < maxTrials && high >= lowest; trial++) {
    const isClose = high - low <= tolerance * high;
    if (isClose && isHighRejected) break;
    const rate = isClose ? high : rounded((low + high) / 2);
    if (await accepts(rate)) {
      low = rate;
      if (rate === high) high = rounded(high * raise);
    } else {
      high = rate;
      isHighRejected = true;
    }
  }
  return low === 0 ? undefined : low;
}

/** Rate with four significant digits, for readable load points. */
export function rounded(rate: number): number {
  return Number(rate.toPrecision(4));
}
