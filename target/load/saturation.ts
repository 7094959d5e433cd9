import type { LoadShape } from "../../contract/load-shape.ts";
import type { ClientUse } from "./round.ts";
import type { LoadWindow } from "./windows.ts";

/** Readings of the load generator's processes for a window. */
export interface ClientWindow {
  readonly window: LoadWindow;
  /** Workers at its start and end, in the same order. */
  readonly start: { readonly workers: readonly WorkerReading[] };
  readonly end: { readonly workers: readonly WorkerReading[] };
}

interface WorkerReading {
  readonly cpuMs: number;
  readonly atMs: number;
  /** p99 of the event loop delay since the start of the window. */
  readonly eventLoopDelayP99Ms: number;
}

const maxCores = 0.9;
const maxEventLoopDelayMs = 10;
/** Share of the p50 latency below which a delay is irrelevant. */
const irrelevantShare = 0.1;
const maxDelayedSends = 0.01;
/**
 * A request is delayed if it is sent later than the longest of 1 ms, a tenth of the mean gap and a tenth of the p50 latency after its due
 * time. Latencies include the delay.
 */
const delayedMs = 1;
const delayedGapShare = 0.1;

/**
 * @param openLoop - Absent for a closed loop, whose requests have no due times.
 * @param p50Ms - Median latency.
 */
export function clientUse(
  windows: readonly ClientWindow[],
  openLoop: Extract<LoadShape, { readonly kind: "open loop" }> | undefined,
  p50Ms = 0,
): ClientUse {
  const [first, last] = [windows[0], windows.at(-1)];
  const cores = (last?.end.workers ?? []).map((end, i) => {
    const start = first?.start.workers[i];
    return start === undefined || end.atMs <= start.atMs
      ? 0
      : (end.cpuMs - start.cpuMs) / (end.atMs - start.atMs);
  });
  return {
    workers: Math.max(1, cores.length),
    busiestWorkerCores: Math.max(0, ...cores),
    eventLoopDelayP99Ms: Math.max(
      0,
      ...windows.flatMap(({ end }) => end.workers.map((worker) => worker.eventLoopDelayP99Ms)),
    ),
    delayedSends: openLoop === undefined ? 0 : delayedShare(windows, openLoop.ratePerSecond, p50Ms),
  };
}

function delayedShare(
  windows: readonly ClientWindow[],
  ratePerSecond: number,
  p50Ms: number,
): number {
  const gapMs = 1_000 / ratePerSecond;
  const limitMs = Math.max(delayedMs, delayedGapShare * gapMs, irrelevantShare * p50Ms);
  const sent = windows.flatMap(({ window }) => [...window.good, ...window.failed]);
  const delayed = sent.filter(({ dueMs, sentMs }) => sentMs - dueMs > limitMs);
  return sent.length === 0 ? 0 : delayed.length / sent.length;
}

/** Reasons why the figures of a load are invalid, as sentences. */
export function invalidReasons(
  { busiestWorkerCores, eventLoopDelayP99Ms, delayedSends }: ClientUse,
  p50Ms: number | undefined,
  samples: number,
): string[] {
  const reasons: string[] = [];
  if (samples === 0) reasons.push("No request succeeded.");
  if (busiestWorkerCores > maxCores) {
    reasons.push(
      `The load generator was the bottleneck: its busiest process used ${busiestWorkerCores.toFixed(2)} of a core.`,
    );
  }
  if (
    eventLoopDelayP99Ms > maxEventLoopDelayMs &&
    eventLoopDelayP99Ms > irrelevantShare * (p50Ms ?? 0)
  ) {
    reasons.push(
      `The load generator processed responses late: the p99 of its event loop delay was ${eventLoopDelayP99Ms.toFixed(1)} ms.`,
    );
  }
  if (delayedSends > maxDelayedSends) {
    reasons.push(
      `The load generator sent late: ${(100 * delayedSends).toFixed(1)} % of the requests were sent after they were due.`,
    );
  }
  return reasons;
}
