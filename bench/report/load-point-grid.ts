import type { LoadPoint } from "../record/bench-record.ts";
import { clientsOf, closedLoop } from "./load-points.ts";
/** Of the loads of a series, those with as many clients as most batches were measured with. */
export function batchPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), clientsOf, ({ imagesPerRequest }) => imagesPerRequest).sort(
    (a, b) => a.imagesPerRequest - b.imagesPerRequest,
  );
}

/** Of the loads of a series, those with the batch that most numbers of clients were measured with. */
export function concurrencyPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), ({ imagesPerRequest }) => imagesPerRequest, clientsOf).sort(
    (a, b) => (clientsOf(a) ?? 0) - (clientsOf(b) ?? 0),
  );
}

/** The load points that agree in `fixed` and have the most different values of `varied`; the smallest `fixed` of equals. */
function widest(
  loadPoints: readonly LoadPoint[],
  fixed: (point: LoadPoint) => number | undefined,
  varied: (point: LoadPoint) => number | undefined,
): LoadPoint[] {
  const groups = new Map<number, LoadPoint[]>();
  for (const point of loadPoints) {
    const key = fixed(point) ?? 0;
    groups.set(key, [...(groups.get(key) ?? []), point]);
  }
  const size = (list: readonly LoadPoint[]) => new Set(list.map(varied)).size;
  const [best] = [...groups].sort(([a, x], [b, y]) => size(y) - size(x) || a - b);
  return [...(best?.[1] ?? [])];
}
