import type { z } from "zod";
import { latencyHistogram, p99MinimumSamples } from "../stats/statistics.ts";
import type { latencyHistogram as histogram, latency } from "./round.ts";

/** Latencies from due time to complete response, in milliseconds, ascending. */
export function sortedLatencies(
  samples: readonly { readonly dueMs: number; readonly doneMs: number }[],
): Float64Array {
  return Float64Array.from(samples, ({ doneMs, dueMs }) => doneMs - dueMs).sort();
}

/** Smallest value that at least `percent` of the values do not exceed. */
export function percentile(sorted: Float64Array, percent: number): number {
  const rank = Math.ceil((percent / 100) * sorted.length);
  return sorted[Math.max(0, rank - 1)] ?? Number.NaN;
}

export interface LatencyDistribution {
  /** Absent without a response. */
  readonly latencyMs?: z.infer<typeof latency>;
  readonly histogram: z.infer<typeof histogram>;
}

/** Percentiles of all latencies, and their histogram. */
export function describeLatency(sorted: Float64Array): LatencyDistribution {
  if (sorted.length === 0) return { histogram: [] };
  return {
    latencyMs: {
      mean: sorted.reduce((sum, value) => sum + value, 0) / sorted.length,
      p50: percentile(sorted, 50),
      p90: percentile(sorted, 90),
      p95: percentile(sorted, 95),
      p99: percentile(sorted, 99),
      max: percentile(sorted, 100),
      p99Reliable: sorted.length >= p99MinimumSamples,
    },
    histogram: latencyHistogram(sorted).map(([us, count]) => [us, count]),
  };
}
