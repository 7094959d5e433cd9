import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import type { LoadShape } from "../record/bench-record.ts";

type OpenLoop = Extract<LoadShape, { readonly kind: "open loop" }>;

/**
 * When the requests of an open loop are due, in milliseconds since its start: ascending, without end. The same load gives
 * the same times.
 */
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

/** Every `workers`-th of them, from the `index`-th on: together the workers send all. */
export function* shareOf(all: Iterable<number>, index: number, workers: number): Generator<number> {
  let i = 0;
  for (const dueMs of all) {
    if (i++ % workers === index) yield dueMs;
  }
}
