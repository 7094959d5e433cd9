import {
  formatBytes,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
  listed,
} from "../../report/document/number-format.ts";
import type { LoadPoint } from "../record/bench-record.ts";
import { timePartNames, timeParts } from "../record/time-parts.ts";
import type { Contender } from "./contenders.ts";
import { failedShare, isFailing, isOffered } from "./load-points.ts";
import { advantage, comparisonLevel, type JudgedMetric } from "./ties.ts";

/** States whether the endpoint achieved the offered rate of an open loop; empty for a closed loop. */
export function offeredRateReasons(point: LoadPoint): readonly string[] {
  const { load, achievedShare, imagesPerRequest } = point;
  if (load.kind !== "open loop") return [];
  const rate = `${formatRate(load.ratePerSecond * imagesPerRequest)} images/s`;
  return [
    isOffered(point)
      ? `It sustained the offered ${rate}; its maximum may be higher.`
      : `It did not sustain the offered rate: ${rate} were offered, and ${formatPercent(achievedShare ?? 1)} of the requests succeeded.`,
  ];
}

/** Difference between the winner and the runner-up, if any, as a sentence. */
export function runnerUpReasons(
  ranked: readonly Contender[],
  metric: JudgedMetric,
): readonly string[] {
  const [first, second] = ranked;
  return first === undefined || second === undefined
    ? []
    : [runnerUpReason(first, second, metric, comparisonLevel(ranked.length))];
}

function runnerUpReason(
  first: Contender,
  second: Contender,
  metric: JudgedMetric,
  level: number,
): string {
  const interval = advantage(first.point, second.point, metric, level);
  const [better, other] =
    metric === "p50"
      ? [second.point.latencyMs?.p50 ?? 0, first.point.latencyMs?.p50 ?? 1]
      : [first.point.imagesPerSecond, second.point.imagesPerSecond];
  const [runnerUp, measured] = [`\`${second.name}\``, formatMsOrRate(second.point, metric)];
  if (better < other && isFailing(second.point)) {
    return `${runnerUp} measured better (${measured}), but ${formatPercent(failedShare(second.point))} of its requests failed.`;
  }
  if (interval === undefined) {
    return `The difference from ${runnerUp} (${measured}) is not judged: that requires two rounds of both.`;
  }
  const { ratio, low, high } = interval;
  const range = `${low.toFixed(2)} to ${high.toFixed(2)}`;
  if (low <= 1) {
    return `The difference from ${runnerUp} (${measured}) is within the noise: ratio ${ratio.toFixed(2)}, interval ${range}; either is suitable.`;
  }
  const figures = `${measured}, interval of the ratio ${range}`;
  return metric === "p50"
    ? `${runnerUp} takes ${formatRatio(ratio)} as long (${figures}).`
    : `${formatRatio(ratio)} the throughput of ${runnerUp} (${figures}).`;
}

function formatMsOrRate(point: LoadPoint, metric: JudgedMetric): string {
  return metric === "p50"
    ? `${formatMs(point.latencyMs?.p50 ?? 0)} ms`
    : `${formatRate(point.imagesPerSecond)} images/s`;
}

/** Part of the latency in which the runner-up loses most, as a sentence. */
export function slowestPartReasons(
  first: LoadPoint,
  { name, point: second }: Contender,
): readonly string[] {
  const parts = new Map(timeParts(first).map(({ id, ms }) => [id, ms]));
  const [largest] = timeParts(second)
    .map(({ id, ms }) => ({ id, excessMs: ms - (parts.get(id) ?? 0) }))
    .sort((a, b) => b.excessMs - a.excessMs);
  if (largest === undefined || largest.id === "unknown" || largest.excessMs < 0.05) return [];
  const sizes =
    largest.id === "network" && second.requestBytes > 1.5 * first.requestBytes
      ? `: its requests have ${formatBytes(second.requestBytes)} instead of ${formatBytes(first.requestBytes)}`
      : "";
  return [
    `\`${name}\` spends ${formatMs(largest.excessMs)} ms more on ${timePartNames[largest.id].phrase}${sizes}.`,
  ];
}

/** States what the clients of the recommended endpoint must compute, if it accepts tensors; empty if it accepts image files. */
export function clientWorkReasons(ranked: readonly Contender[]): readonly string[] {
  const [first] = ranked;
  if (first === undefined || first.point.payload === "jpeg") return [];
  if (first.point.payload === "text") return textWorkReasons(first);
  const fileEndpoint = ranked.find(({ point }) => point.payload === "jpeg");
  const other =
    fileEndpoint === undefined
      ? ""
      : ` \`${fileEndpoint.name}\` accepts image files: ${formatMs(fileEndpoint.point.latencyMs?.p50 ?? 0)} ms, ${formatRate(fileEndpoint.point.imagesPerSecond)} images/s.`;
  return [
    `Clients of \`${first.name}\` must decode and resize each image first; the figures exclude that work.${other}`,
  ];
}

/** States that the clients of an endpoint with token ids must tokenise; empty for the embed API. */
function textWorkReasons({ name, point }: Contender): readonly string[] {
  if (point.endpoint === "embed-http") return [];
  return [`Clients of \`${name}\` must tokenize each text first; the figures exclude that work.`];
}

/** Largest part of the latency, as a sentence. */
export function largestPartReasons(point: LoadPoint): readonly string[] {
  const parts = timeParts(point);
  const [largest] = [...parts].sort((a, b) => b.ms - a.ms);
  const mean = point.latencyMs?.mean;
  if (largest === undefined || mean === undefined || largest.id === "unknown") return [];
  const share = Math.min(1, largest.ms / mean);
  // rounded as printed, so that 50.3 % is not called most
  const isMost = Math.round(share * 100) > 50;
  const limitation = !isMost
    ? ""
    : largest.id === "decode"
      ? " It is limited by decoding on the CPU, not by the model."
      : largest.id === "network"
        ? " It is limited by the network, not by the model."
        : "";
  return [
    `${isMost ? "Most" : "The largest part"} of the latency (${formatPercent(share)}) is ${timePartNames[largest.id].phrase}.${limitation}`,
  ];
}

/** GPU utilisation and executed batch size, as a sentence. */
export function gpuReasons(
  { server }: LoadPoint,
  utilization: number | undefined,
): readonly string[] {
  const parts = [
    ...(utilization === undefined ? [] : [`GPU utilisation ${formatPercent(utilization)}`]),
    ...(server?.averageBatch === undefined
      ? []
      : [`${server.averageBatch.toFixed(1)} images per execution of the model`]),
  ];
  return parts.length === 0 ? [] : [`${listed(parts)}.`];
}
