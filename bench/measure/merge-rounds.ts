import type { Round } from "../../target/load/round.ts";
import { gpuReadingNames, gpuReadings } from "../../target/readings/gpu-readings.ts";
import { histogramQuantile, mean, p99MinimumSamples } from "../../target/stats/statistics.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { stabilityOf } from "../stats/drift.ts";

/** Share of invalid rounds above which a load point is invalid. */
const maxInvalidShare = 0.2;

/** Adds a round to its load point, or a new load point; returns the load point with all rounds so far. */
export function addRound(loadPoints: LoadPoint[], measured: LoadPoint): LoadPoint {
  const index = loadPoints.findIndex((point) => identityOf(point) === identityOf(measured));
  const known = loadPoints[index];
  if (known === undefined) {
    loadPoints.push(measured);
    return measured;
  }
  const merged = mergeRounds(known, measured);
  loadPoints[index] = merged;
  return merged;
}

function identityOf({ id, study, environment, service }: LoadPoint): string {
  return JSON.stringify([id, study, environment, service]);
}

/** Figures of a load point over the rounds of both. */
function mergeRounds(a: LoadPoint, b: LoadPoint): LoadPoint {
  const rounds = [...a.rounds, ...b.rounds];
  const histogram = mergeHistograms(a.histogram, b.histogram);
  const over = (read: (round: Round) => number) => mean(rounds.map(read));
  const weights = [a.rounds.length, b.rounds.length] as const;
  return {
    ...a,
    requestBytes: weightedMean([a.requestBytes, b.requestBytes], weights),
    responseBytes: weightedMean([a.responseBytes, b.responseBytes], weights),
    rounds,
    stability: stabilityOf(rounds),
    seconds: a.seconds + b.seconds,
    samples: a.samples + b.samples,
    requestsPerSecond: over(({ requestsPerSecond }) => requestsPerSecond),
    imagesPerSecond: over(({ imagesPerSecond }) => imagesPerSecond),
    achievedShare: a.achievedShare === undefined ? undefined : over((it) => it.achievedShare ?? 0),
    latencyMs: mergeLatency(a, b, histogram),
    histogram,
    errors: addCounts(a.errors, b.errors),
    errorsWithWarmup: addCounts(a.errorsWithWarmup, b.errorsWithWarmup),
    client: {
      workers: Math.max(a.client.workers, b.client.workers),
      busiestWorkerCores: Math.max(a.client.busiestWorkerCores, b.client.busiestWorkerCores),
      eventLoopDelayP99Ms: Math.max(a.client.eventLoopDelayP99Ms, b.client.eventLoopDelayP99Ms),
      delayedSends: weightedMean([a.client.delayedSends, b.client.delayedSends], weights),
    },
    server: mergeServerTimes(a.server, b.server),
    gpu: mergeGpus(a, b, weights),
    invalid: invalidReasonsOf(rounds),
  };
}

function invalidReasonsOf(rounds: readonly Round[]): string[] {
  const invalid = rounds.filter(({ invalid: reasons }) => reasons.length > 0);
  if (invalid.length <= maxInvalidShare * rounds.length) return [];
  const count =
    rounds.length === 1 ? [] : [`${invalid.length} of ${rounds.length} rounds are invalid.`];
  return [...(invalid[0]?.invalid ?? []), ...count];
}

function mergeLatency(
  a: LoadPoint,
  b: LoadPoint,
  histogram: LoadPoint["histogram"],
): LoadPoint["latencyMs"] {
  if (a.latencyMs === undefined || b.latencyMs === undefined) return a.latencyMs ?? b.latencyMs;
  const at = (quantile: number) => histogramQuantile(histogram, quantile) / 1_000;
  return {
    mean: weightedMean([a.latencyMs.mean, b.latencyMs.mean], [a.samples, b.samples]),
    p50: at(0.5),
    p90: at(0.9),
    p95: at(0.95),
    p99: at(0.99),
    max: Math.max(a.latencyMs.max, b.latencyMs.max),
    p99Reliable: a.samples + b.samples >= p99MinimumSamples,
  };
}

function mergeHistograms(
  a: LoadPoint["histogram"],
  b: LoadPoint["histogram"],
): LoadPoint["histogram"] {
  const counts = new Map<number, number>();
  for (const [us, count] of [...a, ...b]) counts.set(us, (counts.get(us) ?? 0) + count);
  return [...counts].sort(([x], [y]) => x - y);
}

function addCounts(
  a: Readonly<Record<string, number>>,
  b: Readonly<Record<string, number>>,
): Record<string, number> {
  const sums = { ...a };
  for (const [code, count] of Object.entries(b)) sums[code] = (sums[code] ?? 0) + count;
  return sums;
}

/** Merges the server times of two rounds: counts are added, times averaged by requests, and batch sizes by executions. */
function mergeServerTimes(a: LoadPoint["server"], b: LoadPoint["server"]): LoadPoint["server"] {
  if (a === undefined || b === undefined) return a ?? b;
  const { requests, executions, averageBatch, source, ...times } = a;
  const names = Object.keys({ ...times, ...b }).filter((name) => name.endsWith("Ms"));
  const read = (server: typeof a, name: string) => server[name as keyof typeof times];
  const meanOf = (x: number | undefined, y: number | undefined, weights: readonly number[]) =>
    x === undefined || y === undefined ? (x ?? y) : weightedMean([x, y], weights);
  return {
    source,
    requests: requests + b.requests,
    executions: executions === undefined ? b.executions : executions + (b.executions ?? 0),
    averageBatch: meanOf(averageBatch, b.averageBatch, [executions ?? 1, b.executions ?? 1]),
    ...Object.fromEntries(
      names.map((name) => [name, meanOf(read(a, name), read(b, name), [requests, b.requests])]),
    ),
  };
}

function mergeGpus(a: LoadPoint, b: LoadPoint, weights: readonly number[]): LoadPoint["gpu"] {
  if (a.gpu === undefined || b.gpu === undefined) return a.gpu ?? b.gpu;
  const others = new Map(b.gpu.gpus.map((gpu) => [gpu.id, gpu]));
  return {
    ...a.gpu,
    gpus: a.gpu.gpus.map((gpu) => {
      const merged = { ...gpu };
      for (const name of gpuReadingNames) {
        const [x, y] = [gpu[name], others.get(gpu.id)?.[name]];
        if (x === undefined || y === undefined) continue;
        const isMax = gpuReadings[name].combine === "max";
        merged[name] = isMax ? Math.max(x, y) : weightedMean([x, y], weights);
      }
      return merged;
    }),
  };
}

/** The unweighted mean if all weights are 0. */
function weightedMean(values: readonly number[], weights: readonly number[]): number {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  if (total === 0) return mean(values);
  return values.reduce((sum, value, i) => sum + value * (weights[i] ?? 0), 0) / total;
}
