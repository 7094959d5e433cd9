import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { LoadShape } from "../../contract/load-shape.ts";

type OpenLoop = Extract<LoadShape, { readonly kind: "open loop" }>;

/** Due times of an open loop's requests in milliseconds since its start: ascending, endless and reproducible. */
export function* arrivals({ arrivals: kind, ratePerSecond, seed }: OpenLoop): Generator<number> {
  const gapMs = 1_000 / ratePerSecond;
  if (kind === "constant") {
    for (let i = 0; ; i++) yield i * gapMs;
  }
  const random = xoroshiro128plus(seed);
  for (let dueMs = 0; ; ) {
    // the gaps of a Poisson process are exponentially distributed
    dueMs -= Math.log(1 - uniformFloat64(random)) * gapMs;
    yield dueMs;
  }
}

/** Every `workers`-th due time from the `index`-th on, so that the workers share a load. */
export function* shareOf(all: Iterable<number>, index: number, workers: number): Generator<number> {
  let i = 0;
  for (const dueMs of all) {
    if (i++ % workers === index) yield dueMs;
  }
}
