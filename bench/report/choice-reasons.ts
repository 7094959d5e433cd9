import type { LoadPoint } from "../record/bench-record.ts";
import { timePartNames, timeParts } from "../record/time-parts.ts";
import { differs, ratioInterval } from "../stats/intervals.ts";
import type { Contender } from "./contenders.ts";
import { failedShare, isFailing, isOffered } from "./load-points.ts";
import {
  formatBytes,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
  listed,
} from "./number-format.ts";
/** Of an open loop: whether it kept up. */
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

export function runnerUpReason(
  first: Contender,
  second: Contender,
  metric: "p50" | "throughput",
): string {
  const interval = ratioInterval(second.point, first.point, metric);
  const [better, other] =
    metric === "p50"
      ? [second.point.latencyMs?.p50 ?? 0, first.point.latencyMs?.p50 ?? 1]
      : [first.point.imagesPerSecond, second.point.imagesPerSecond];
  const word = metric === "p50" ? "shorter" : "more";
  const next = `\`${second.name}\`, the next`;
  if (better < other) {
    const doubt = isFailing(second.point)
      ? `${formatPercent(failedShare(second.point))} of its requests failed`
      : "was not stable";
    return `\`${second.name}\` looked better (${formatMsOrRate(second.point, metric)}), but ${doubt}.`;
  }
  if (interval !== undefined && !differs(interval)) {
    return `${next}, is equal within the noise (${formatMsOrRate(second.point, metric)}); either is suitable.`;
  }
  const range =
    interval === undefined
      ? ""
      : metric === "p50"
        ? `, 95 % confidence interval ${(1 / interval.high).toFixed(2)} to ${(1 / interval.low).toFixed(2)}`
        : `, 95 % confidence interval ${interval.low.toFixed(2)} to ${interval.high.toFixed(2)}`;
  return `${formatRatio(better / other)} ${word} than ${next} (${formatMsOrRate(second.point, metric)}${range}).`;
}

function formatMsOrRate(point: LoadPoint, metric: "p50" | "throughput"): string {
  return metric === "p50"
    ? `${formatMs(point.latencyMs?.p50 ?? 0)} ms`
    : `${formatRate(point.imagesPerSecond)} images/s`;
}

/** Where the time goes that the second needs besides. */
export function slowestPartReasons(
  first: LoadPoint,
  { name, point: second }: Contender,
): readonly string[] {
  const parts = new Map(timeParts(first).map(({ id, ms }) => [id, ms]));
  const [most] = timeParts(second)
    .map(({ id, ms }) => ({ id, more: ms - (parts.get(id) ?? 0) }))
    .sort((a, b) => b.more - a.more);
  if (most === undefined || most.id === "unknown" || most.more < 0.05) return [];
  const sizes =
    most.id === "network" && second.requestBytes > 1.5 * first.requestBytes
      ? `: its request is ${formatBytes(second.requestBytes)}, not ${formatBytes(first.requestBytes)}`
      : "";
  return [
    `\`${name}\` spends ${formatMs(most.more)} ms more on ${timePartNames[most.id].phrase}${sizes}.`,
  ];
}

/** Who sends tensors has decoded and resized the images before: which endpoint does not ask that of its clients. */
export function clientWorkReasons(ranked: readonly Contender[]): readonly string[] {
  const [first] = ranked;
  if (first === undefined || first.point.payload === "jpeg") return [];
  const files = ranked.find(({ point }) => point.payload === "jpeg");
  const other =
    files === undefined
      ? ""
      : ` \`${files.name}\` accepts image files: ${formatMs(files.point.latencyMs?.p50 ?? 0)} ms, ${formatRate(files.point.imagesPerSecond)} images/s.`;
  return [
    `Its clients must decode and resize every image first; this figure excludes that work.${other}`,
  ];
}

export function largestPartReasons(point: LoadPoint): readonly string[] {
  const parts = timeParts(point);
  const [most] = [...parts].sort((a, b) => b.ms - a.ms);
  const mean = point.latencyMs?.mean;
  if (most === undefined || mean === undefined || most.id === "unknown") return [];
  const share = Math.min(1, most.ms / mean);
  // as it is written: 50.3 % is no "most of it (50 %)"
  const most50 = Math.round(share * 100) > 50;
  const bound = !most50
    ? ""
    : most.id === "decode"
      ? " It is limited by decoding on the CPU, not by the model."
      : most.id === "network"
        ? " It is limited by the network, not by the model."
        : "";
  return [
    `${most50 ? "Most" : "The largest part"} of a request's time there (${formatPercent(share)}) goes into ${timePartNames[most.id].phrase}.${bound}`,
  ];
}

export function gpuReasons({ server }: LoadPoint, use: number | undefined): readonly string[] {
  const parts = [
    ...(use === undefined ? [] : [`GPU utilisation ${formatPercent(use)}`]),
    ...(server?.averageBatch === undefined
      ? []
      : [`${server.averageBatch.toFixed(1)} images per execution of the model`]),
  ];
  return parts.length === 0 ? [] : [`${listed(parts)}.`];
}
