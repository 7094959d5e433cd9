import type { LoadPoint } from "../record/bench-record.ts";
import { closedLoop, loadText, type Series, unreliabilityRank } from "./load-points.ts";
export interface Contender {
  readonly name: string;
  readonly point: LoadPoint;
}

/**
 * The smallest load that the most paths were measured with (one image, one client where that is there), as far as it can be
 * trusted of each.
 */
export function smallestLoad(series: readonly Series[]): readonly Contender[] {
  return smallestOf(series, closedLoop);
}

export function smallestOf(
  series: readonly Series[],
  cellsOf: (loadPoints: readonly LoadPoint[]) => readonly LoadPoint[],
): readonly Contender[] {
  const loads = new Map<string, Contender[]>();
  for (const { name, loadPoints } of series) {
    for (const point of cellsOf(loadPoints)) {
      const key = JSON.stringify([point.imagesPerRequest, loadText(point.load)]);
      loads.set(key, [...(loads.get(key) ?? []), { name, point }]);
    }
  }
  const intensity = ({ load }: LoadPoint) =>
    load.kind === "closed loop" ? load.concurrency : load.ratePerSecond;
  const size = ({ point }: Contender) => point.imagesPerRequest * 1e6 + intensity(point);
  const sorted = [...loads.values()].sort(
    (a, b) => b.length - a.length || size(a[0]!) - size(b[0]!),
  );
  for (const all of sorted) {
    const usable = all.filter(({ point }) => unreliabilityRank(point) !== undefined);
    if (usable.length > 0) return usable;
  }
  return [];
}
