import type { LoadPoint } from "../record/bench-record.ts";
import { closedLoop, grouped, loadText, type Series, unreliabilityRank } from "./load-points.ts";

/** Load point with which an endpoint competes. */
export interface Contender {
  readonly name: string;
  readonly point: LoadPoint;
}

/**
 * Load points of the smallest load that most endpoints share, without invalid ones. With `openLoop`, the smallest common rate.
 */
export function smallestLoad(
  series: readonly Series[],
  select: (loadPoints: readonly LoadPoint[]) => readonly LoadPoint[] = closedLoop,
): readonly Contender[] {
  const contenders = series.flatMap(({ name, loadPoints }) =>
    select(loadPoints).map((point): Contender => ({ name, point })),
  );
  const loads = grouped(contenders, ({ point }) =>
    JSON.stringify([point.imagesPerRequest, loadText(point.load)]),
  );
  const intensity = ({ load }: LoadPoint) =>
    load.kind === "closed loop" ? load.concurrency : load.ratePerSecond;
  const size = ({ point }: Contender) => point.imagesPerRequest * 1e6 + intensity(point);
  const sorted = loads.sort((a, b) => b.length - a.length || size(a[0]) - size(b[0]));
  for (const all of sorted) {
    const valid = all.filter(({ point }) => unreliabilityRank(point) !== undefined);
    if (valid.length > 0) return valid;
  }
  return [];
}
