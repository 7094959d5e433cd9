import type { LoadPoint } from "../record/bench-record.ts";
import { clientsOf, closedLoop, grouped } from "./load-points.ts";

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

/** Returns the load points that share one value of `fixed` and cover the most values of `varied`; of equal groups, that with the smallest `fixed`. */
function widest(
  loadPoints: readonly LoadPoint[],
  fixed: (point: LoadPoint) => number | undefined,
  varied: (point: LoadPoint) => number | undefined,
): LoadPoint[] {
  const size = (list: readonly LoadPoint[]) => new Set(list.map(varied)).size;
  const key = ([first]: readonly [LoadPoint, ...LoadPoint[]]) => fixed(first) ?? 0;
  const [best = []] = grouped(loadPoints, (point) => fixed(point) ?? 0).sort(
    (a, b) => size(b) - size(a) || key(a) - key(b),
  );
  return [...best];
}
