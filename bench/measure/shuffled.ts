import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** The values in random order (Fisher-Yates); the same seed gives the same order. */
export function shuffled<T>(values: readonly T[], seed: number): T[] {
  const random = xoroshiro128plus(seed);
  const order = [...values];
  for (let i = order.length - 1; i > 0; i--) {
    const j = uniformInt(random, 0, i);
    [order[i], order[j]] = [order[j] as T, order[i] as T];
  }
  return order;
}
