import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { mean } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { stabilityOf } from "./drift.ts";

/** Standard normal numbers (Box-Muller) that depend on the seed alone. */
export function normals(seed: number): () => number {
  const random = xoroshiro128plus(seed);
  const uniform = () => uniformFloat64(random);
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** Relative standard deviations, 0..1. */
export interface Noise {
  /** Between rounds. */
  readonly between: number;
  /** Between the windows of a round. */
  readonly within: number;
}

/** The load point with other rounds: multiplicative noise between its rounds and windows, and latencies that follow from it. */
export function simulatedRounds(
  point: LoadPoint,
  rounds: number,
  { between, within }: Noise,
  normal: () => number,
): LoadPoint {
  const [template] = point.rounds;
  const { latencyMs, imagesPerSecond: rate } = point;
  const simulated = Array.from({ length: rounds }, (_, i) => {
    const ofRound = Math.exp(between * normal());
    const windows = template!.windows.map((window) => ({
      ...window,
      imagesPerSecond: rate * ofRound * Math.exp(within * normal()),
    }));
    const factor = mean(windows.map(({ imagesPerSecond }) => imagesPerSecond)) / rate;
    const slower = (ms: number) => ms / factor;
    return {
      ...template!,
      round: i + 1,
      windows,
      imagesPerSecond: rate * factor,
      latencyMs: latencyMs && {
        ...latencyMs,
        p50: slower(latencyMs.p50),
        p95: slower(latencyMs.p95),
        p99: slower(latencyMs.p99),
      },
    };
  });
  const average = mean(simulated.map(({ imagesPerSecond }) => imagesPerSecond));
  return {
    ...point,
    rounds: simulated,
    stability: stabilityOf(simulated),
    imagesPerSecond: average,
    latencyMs: latencyMs && { ...latencyMs, p50: (latencyMs.p50 * rate) / average },
  };
}
