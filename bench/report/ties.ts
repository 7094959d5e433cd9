import type { LoadPoint } from "../record/bench-record.ts";
import { confidencePerRatio, type Interval, pairedRatio } from "../stats/intervals.ts";
import type { Contender } from "./contenders.ts";
import { isFailing } from "./load-points.ts";

export type JudgedMetric = "p50" | "throughput";

/** Metrics by which a report names a best endpoint. */
const judgedMetrics = 2;

/**
 * Confidence level of each comparison of a report: all pairs of endpoints and both metrics together have 95 %, because the best of
 * several equal endpoints is always ahead of some other by chance.
 */
export function comparisonLevel(endpoints: number): number {
  return confidencePerRatio((judgedMetrics * endpoints * (endpoints - 1)) / 2);
}

/** Factor by which the first load point is better, paired by round: above 1 for a higher throughput or a lower p50. */
export function advantage(
  first: LoadPoint,
  other: LoadPoint,
  metric: JudgedMetric,
  level: number,
): Interval | undefined {
  const pair = metric === "p50" ? ([first, other] as const) : ([other, first] as const);
  return pairedRatio([pair], metric, level);
}

/** Names of contenders that the first one does not significantly surpass; those with many failed requests never tie. */
export function tiesOf(
  [first, ...others]: readonly Contender[],
  metric: JudgedMetric,
): readonly string[] {
  if (first === undefined) return [];
  const level = comparisonLevel(others.length + 1);
  return others.flatMap(({ name, point }) => {
    if (isFailing(point) && !isFailing(first.point)) return [];
    return (advantage(first.point, point, metric, level)?.low ?? 0) > 1 ? [] : [name];
  });
}
