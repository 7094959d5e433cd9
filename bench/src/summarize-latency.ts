import { build } from "hdr-histogram-js";
import {
  type LatencySummary,
  latencyHistogram,
  p99MinimumSamples,
  type Sample,
} from "./statistics.ts";

const highestUs = 3_600_000_000;

/** Latency of the requests that were answered well; `undefined` when none was. */
export function summarizeLatency(samples: readonly Sample[]): LatencySummary | undefined {
  const good = samples.filter((sample) => sample.ok);
  if (good.length === 0) return undefined;
  const histogram = build({
    lowestDiscernibleValue: 1,
    highestTrackableValue: highestUs,
    numberOfSignificantValueDigits: 3,
    useWebAssembly: false,
  });
  for (const { latencyMs } of good) {
    histogram.recordValue(Math.min(highestUs, Math.max(1, Math.round(latencyMs * 1_000))));
  }
  const atMs = (percentile: number) => histogram.getValueAtPercentile(percentile) / 1_000;
  return {
    count: good.length,
    p50Ms: atMs(50),
    p95Ms: atMs(95),
    p99Ms: atMs(99),
    maxMs: atMs(100),
    p99Reliable: good.length >= p99MinimumSamples,
    histogram: latencyHistogram(good.map(({ latencyMs }) => latencyMs)),
  };
}
