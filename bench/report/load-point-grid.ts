import type { LoadPoint } from "../record/bench-record.ts";
import { clientsOf, closedLoop } from "./load-points.ts";

/** Load points by batch size, at the number of clients with the most batch sizes. */
export function batchPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), clientsOf, ({ imagesPerRequest }) => imagesPerRequest).sort(
    (a, b) => a.imagesPerRequest - b.imagesPerRequest,
  );
}

/** Load points by clients, at the batch size with the most numbers of clients. */
export function concurrencyPoints(loadPoints: readonly LoadPoint[]): readonly LoadPoint[] {
  return widest(closedLoop(loadPoints), ({ imagesPerRequest }) => imagesPerRequest, clientsOf).sort(
    (a, b) => (clientsOf(a) ?? 0) - (clientsOf(b) ?? 0),
  );
}

/** Load points with equal `fixed` and the most values of `varied`; in a tie, those with the smallest `fixed`. */
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
