import jstat from "jstat";
import type { Round } from "../../target/load/round.ts";
import { mean } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { type ComparedMetric, metricOf } from "../record/metrics.ts";

/**
 * Confidence intervals by Student's t. The unit is the round: windows and requests of one round share its processes, connections
 * and state of the machine, so they are not independent samples. Ratios are computed from logarithms.
 */

/** Ratio with its confidence interval, 95 % unless another level was requested. */
export interface Interval {
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

/** Mean with its confidence interval. */
export interface MeanInterval {
  readonly mean: number;
  readonly low: number;
  readonly high: number;
}

export type Pair = readonly [a: LoadPoint, b: LoadPoint];

const { jStat } = jstat;
export const confidence = 0.95;

/** Value of a metric over all rounds; absent if it was not measured or is not reliable. */
export function figureOf(point: LoadPoint, metric: ComparedMetric): number | undefined {
  const { read, caution } = metricOf(metric);
  const value = read(point);
  return value === undefined || !(value > 0) || caution?.(point) !== undefined ? undefined : value;
}

/**
 * Ratio `b` / `a` of load points of one record, paired by round, so that the state of the machine in a round cancels out. Several
 * pairs give the geometric mean of their ratios, computed per round. `undefined` with fewer than two rounds.
 *
 * @param level - Confidence level; higher than 95 % if several ratios are judged together.
 */
export function pairedRatio(
  pairs: readonly Pair[],
  metric: ComparedMetric,
  level = confidence,
): Interval | undefined {
  const measured = pairs.filter((pair) => hasFigures(pair, metric));
  const first = measured[0]?.[0].rounds ?? [];
  const ratios = first.flatMap(({ round }) => {
    const logs = measured.map(([a, b]) => logOf(b, metric, round) - logOf(a, metric, round));
    return logs.every(Number.isFinite) ? [mean(logs)] : [];
  });
  return ratioOf(meanInterval(ratios, level));
}

/**
 * Ratio `b` / `a` of load points of two records, whose rounds are independent (Welch's t). Drift between the two runs is not in the
 * interval. `undefined` unless both records have at least two rounds.
 */
export function unpairedRatio(
  pairs: readonly Pair[],
  metric: ComparedMetric,
  level = confidence,
): Interval | undefined {
  const measured = pairs.filter((pair) => hasFigures(pair, metric));
  const [a, b] = [0, 1].map((side) => {
    const points = measured.map((pair) => pair[side as 0 | 1]);
    return (points[0]?.rounds ?? []).flatMap(({ round }) => {
      const logs = points.map((point) => logOf(point, metric, round));
      return logs.every(Number.isFinite) ? [mean(logs)] : [];
    });
  }) as [number[], number[]];
  if (a.length < 2 || b.length < 2) return undefined;
  const [errorA, errorB] = [squaredError(a), squaredError(b)];
  const squared = errorA + errorB;
  const freedom =
    squared === 0
      ? a.length + b.length - 2
      : squared ** 2 / (errorA ** 2 / (a.length - 1) + errorB ** 2 / (b.length - 1));
  return ratioOf(around(mean(b) - mean(a), Math.sqrt(squared), freedom, level));
}

/** Mean of independent values, one per round; `undefined` with fewer than two. */
export function meanInterval(
  values: readonly number[],
  level = confidence,
): MeanInterval | undefined {
  if (values.length < 2) return undefined;
  return around(mean(values), Math.sqrt(squaredError(values)), values.length - 1, level);
}

/** Figure of a load point with the interval over its rounds. */
export function figureInterval(point: LoadPoint, metric: ComparedMetric): MeanInterval | undefined {
  return meanInterval(point.rounds.flatMap((round) => metricOf(metric).compared?.(round) ?? []));
}

/**
 * Confidence level for each of several ratios at which all of them together have 95 % confidence
 * (Bonferroni correction).
 */
export function confidencePerRatio(ratioCount: number): number {
  return 1 - (1 - confidence) / Math.max(1, ratioCount);
}

/** Returns whether a difference is significant. */
export function differs({ low, high }: Interval): boolean {
  return low > 1 || high < 1;
}

/** Ratio of an interval of logarithms. */
export function ratioOf(logs: MeanInterval | undefined): Interval | undefined {
  return logs && { ratio: Math.exp(logs.mean), low: Math.exp(logs.low), high: Math.exp(logs.high) };
}

const hasFigures = ([a, b]: Pair, metric: ComparedMetric) =>
  figureOf(a, metric) !== undefined && figureOf(b, metric) !== undefined;

/** Returns the logarithm of a metric in one round; NaN if the round or its metric is missing. */
function logOf({ rounds }: LoadPoint, metric: ComparedMetric, number: Round["round"]): number {
  const found = rounds.find(({ round }) => round === number);
  const value = found && metricOf(metric).compared?.(found);
  return value === undefined || !(value > 0) ? Number.NaN : Math.log(value);
}

/** Squared standard error of the mean. */
function squaredError(values: readonly number[]): number {
  const average = mean(values);
  const squares = values.reduce((sum, value) => sum + (value - average) ** 2, 0);
  return squares / (values.length - 1) / values.length;
}

function around(center: number, error: number, freedom: number, level: number): MeanInterval {
  const margin = error === 0 ? 0 : jStat.studentt.inv((1 + level) / 2, freedom) * error;
  return { mean: center, low: center - margin, high: center + margin };
}
