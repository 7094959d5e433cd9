import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { median } from "../../target/stats/statistics.ts";
import type { Figure, PublishedFile } from "./published.ts";

/** Decimals of a published figure. A whole number below 10 counts as one decimal, because JSON drops the zero of `4.0`. */
function decimalsOf(value: number): number {
  const decimals = String(value).split(".")[1]?.length ?? 0;
  return Number.isInteger(value) && Math.abs(value) < 10 ? 1 : decimals;
}

/** A value that the source could have rounded, from its range, or the median of resampled rounds. */
export function drawnValue(
  { value, range, rounds }: Pick<Figure, "value" | "range" | "rounds">,
  uniform: () => number,
): number {
  if (rounds !== undefined) {
    return median(rounds.map(() => rounds[Math.floor(uniform() * rounds.length)] ?? 0)) ?? 0;
  }
  if (range !== undefined) return range[0] + uniform() * (range[1] - range[0]);
  const exact = value ?? Number.NaN;
  return exact + (uniform() - 0.5) * 10 ** -decimalsOf(exact);
}

/** Copies of the published figures that the sources could have rounded to those published; the same for the same seed. */
export function roundedSources(
  published: ReadonlyMap<string, PublishedFile>,
  draws: number,
  seed = 1,
): readonly ReadonlyMap<string, PublishedFile>[] {
  const random = xoroshiro128plus(seed);
  const uniform = () => (random.next() >>> 0) / 2 ** 32;
  return Array.from(
    { length: draws },
    () =>
      new Map(
        [...published].map(([id, file]) => [
          id,
          {
            ...file,
            figures: file.figures.map((figure) => ({
              ...figure,
              value: drawnValue(figure, uniform),
              range: undefined,
            })),
          },
        ]),
      ),
  );
}
