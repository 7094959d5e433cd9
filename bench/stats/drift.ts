import jstat from "jstat";
import type { Round } from "../../target/load/round.ts";
import { mean } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "../record/bench-record.ts";

const { jStat } = jstat;

/** Trend of positive values over time. */
export interface Trend {
  /** Relative change from the first to the last value by regression: 0.1 = 10 % more. */
  readonly change: number;
  /** Probability of a slope at least as steep if there is no trend (two-sided t test), 0..1. */
  readonly pValue: number;
}

/** Probability below which a trend is drift; low, because a report tests every load point twice. */
const significance = 0.01;
/** Change that is irrelevant even if it is significant. */
const irrelevantChange = 0.05;

/**
 * Common slope of the logarithms of several sequences, each with its own level. `undefined` without a positive value for each time
 * or with fewer than two degrees of freedom, as for three values.
 */
export function trendOf(sequences: readonly (readonly number[])[]): Trend | undefined {
  const points = sequences.flatMap((values) => {
    const logs = values.map(Math.log);
    const [centre, middle] = [mean(logs), (values.length - 1) / 2];
    return logs.map((log, i) => ({ x: i - middle, y: log - centre }));
  });
  const freedom = points.length - sequences.length - 1;
  const squares = points.reduce((sum, { x }) => sum + x ** 2, 0);
  if (freedom < 2 || squares === 0 || !points.every(({ y }) => Number.isFinite(y))) {
    return undefined;
  }
  const slope = points.reduce((sum, { x, y }) => sum + x * y, 0) / squares;
  const residual = points.reduce((sum, { x, y }) => sum + (y - slope * x) ** 2, 0);
  const error = Math.sqrt(residual / freedom / squares);
  const steps = Math.max(...sequences.map(({ length }) => length)) - 1;
  return {
    change: Math.expm1(slope * steps),
    pValue: slope === 0 ? 1 : 2 * jStat.studentt.cdf(-Math.abs(slope) / error, freedom),
  };
}

const isDrift = (trend: Trend | undefined) =>
  trend !== undefined && trend.pValue < significance && Math.abs(trend.change) >= irrelevantChange;

/** Stability of a load point: whether its throughput has a trend within its rounds, or from round to round. */
export function stabilityOf(rounds: readonly Round[]): LoadPoint["stability"] {
  const inRound = trendOf(rounds.map(({ windows }) => windows.map((it) => it.imagesPerSecond)));
  const overRounds = trendOf([rounds.map(({ imagesPerSecond }) => imagesPerSecond)]);
  const tested = [inRound, overRounds].filter((trend) => trend !== undefined);
  const isShort = tested.length === 0 || rounds.some(({ outcome }) => outcome === "short");
  return {
    verdict: rounds.some(({ outcome }) => outcome === "interrupted")
      ? "interrupted"
      : tested.some(isDrift)
        ? "drifting"
        : isShort
          ? "short"
          : "stable",
    ...(inRound && { changeInRound: inRound.change }),
    ...(overRounds && { changeOverRounds: overRounds.change }),
    ...(tested.length > 0 && { p: Math.min(...tested.map(({ pValue: p }) => p)) }),
  };
}
