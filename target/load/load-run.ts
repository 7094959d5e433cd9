import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../../contract/user-error.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { mean } from "../stats/statistics.ts";
import { describeLatency, sortedLatencies } from "./latency.ts";
import type { MeasuredLoad, MeasureOptions } from "./measured-load.ts";
import { codeText, countCodes, isGood, type TimedSample } from "./samples.ts";
import { clientUse, invalidReasons } from "./saturation.ts";
import { describeWindow, type LoadWindow, makeWindow } from "./windows.ts";
import { clockMs, ownCodes } from "./worker-messages.ts";
import type { Collected, Workers } from "./workers.ts";

/** Slow responses extend the warm-up by at most this share of the maximum duration of the load. */
const maxWarmupShare = 0.3;
/** Minimum number of responses per window, failures included. A window is extended until it has them and one per client. */
const minResponses = 3;
/** Minimum time in ms to wait for outstanding responses at the end of a load. High latencies extend it. */
const drainMs = 5_000;
const drainLatencies = 2;
const maxDrainMs = 60_000;
/** Time to wait for the server's counters after Ctrl-C. */
const countersGraceMs = 500;
const pollMs = 20;
/** Timers may fire early. */
const timerErrorMs = 2;

/** Errors of a server that is not listening. */
const unreachable: readonly string[] = [
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
];

/** Totals over all runs of one load, because a run restarts when another worker is needed. */
export interface Totals {
  /** Latest end of the load, on the clock of `clockMs`. */
  endMs: number;
  warmup: { seconds: number; requests: number };
  readonly errors: Map<string, number>;
}

export function newTotals(): Totals {
  return { endMs: Number.NaN, warmup: { seconds: 0, requests: 0 }, errors: new Map() };
}

/** Boundary between two windows. */
interface Boundary {
  readonly atMs: number;
  /** Time up to which responses of the preceding window are counted. */
  readonly countedToMs: number;
  readonly workers: Collected["workers"];
  readonly counters: unknown;
}

interface MeasuredWindow {
  readonly window: LoadWindow;
  readonly start: Boundary;
  readonly end: Boundary;
  /** Whether the window reached its full length and the minimum number of responses. */
  readonly complete: boolean;
}

/** One load, from its first request to its last response. */
export class LoadRun {
  /** Responses not yet assigned to a window. */
  #pending: TimedSample[] = [];
  /** All samples, from which the figures are computed at the end. */
  #kept: TimedSample[] = [];
  #boundary: Boundary = { atMs: 0, countedToMs: 0, workers: [], counters: undefined };

  constructor(
    private readonly workers: Workers,
    private readonly requests: PreparedRequests,
    private readonly options: MeasureOptions,
    private readonly totals: Totals,
  ) {}

  /** Runs the warm-up and returns the CPU utilisation of the busiest worker in its second half, 0..1. */
  async warmUp(): Promise<number> {
    const { durationSeconds, windowSeconds, warmupSeconds = windowSeconds, signal } = this.options;
    const startMs = this.workers.start();
    const maxDurationMs = durationSeconds * 1_000;
    if (Number.isNaN(this.totals.endMs)) this.totals.endMs = startMs + maxDurationMs;
    const longestMs = Math.max(warmupSeconds * 1_000, maxDurationMs * maxWarmupShare);
    const untilMs = Math.min(this.totals.endMs, startMs + longestMs);
    const { workers } = await this.#collect(true);
    this.#boundary = { atMs: startMs, countedToMs: startMs, workers, counters: undefined };
    const halves: MeasuredWindow[] = [];
    while (halves.length < 2 && !signal.aborted) {
      const half = await this.#timedWindow(warmupSeconds / 2, untilMs);
      halves.push(half);
      this.totals.warmup.requests += half.window.good.length;
      if (half.window.good.length === 0) this.#rejectUnreachable(half.window.failed);
    }
    this.totals.warmup.seconds += (this.#boundary.atMs - startMs) / 1_000;
    return clientUse(halves.slice(-1), undefined).busiestWorkerCores;
  }

  /** Measures a fixed number of windows. Call {@link warmUp} first. */
  async measure(): Promise<MeasuredLoad> {
    const { signal, windows: count, windowSeconds, onWindow } = this.options;
    const startedAt = new Date().toISOString();
    const measured: MeasuredWindow[] = [];
    this.#kept = this.#kept.filter(({ doneMs }) => doneMs > this.#boundary.atMs);
    const { imagesPerRequest } = this.requests;
    while (measured.length < count && !signal.aborted) {
      const isLast = clockMs() + windowSeconds * 1_000 > this.totals.endMs;
      if (isLast && measured.length > 0) break;
      const next = await this.#timedWindow(windowSeconds, this.totals.endMs);
      if (!next.complete && measured.length > 0) break;
      measured.push(next);
      onWindow?.(describeWindow(next.window, imagesPerRequest), measured.length - 1);
      if (!next.complete) break;
    }
    await this.stop();

    const isComplete = measured.length === count && measured.every(({ complete }) => complete);
    return {
      ...this.#figures(measured),
      startedAt,
      warmup: this.totals.warmup,
      windows: measured.map((one) =>
        describeWindow(one.window, imagesPerRequest, this.#dueIn(one, one).filter(isGood)),
      ),
      outcome: signal.aborted ? "interrupted" : isComplete ? "complete" : "short",
    };
  }

  /** Stops sending and waits for outstanding responses. */
  async stop(): Promise<void> {
    const { signal } = this.options;
    await this.#collect(false);
    const slowestMs = this.#kept.reduce(
      (most, { dueMs, doneMs }) => Math.max(most, doneMs - dueMs),
      0,
    );
    const waitMs = Math.min(Math.max(drainMs, drainLatencies * slowestMs), maxDrainMs);
    const stopped = this.workers.stop(signal.aborted ? 0 : waitMs);
    // Ctrl-C during the wait ends it; missing responses are excluded
    const rest = signal.aborted ? await stopped : await unlessAborted(stopped, signal, 0);
    if (rest !== undefined) this.#addSamples(rest);
  }

  #figures(
    measured: readonly MeasuredWindow[],
  ): Omit<MeasuredLoad, "startedAt" | "warmup" | "windows" | "outcome"> {
    const { load, readCounters } = this.options;
    const { imagesPerRequest, requests } = this.requests;
    const [first, last] = [measured[0], measured.at(-1)];
    const due = first && last ? this.#dueIn(first, last) : [];
    const good = due.filter(isGood);
    const seconds = measured.reduce((sum, { window }) => sum + window.seconds, 0);
    const responses = measured.reduce((sum, { window }) => sum + window.good.length, 0);
    const perSecond = seconds > 0 ? responses / seconds : 0;
    const latency = describeLatency(sortedLatencies(good));
    const openLoop = load.kind === "open loop" ? load : undefined;
    const client = clientUse(measured, openLoop, latency.latencyMs?.p50);
    const counters = { before: first?.start.counters, after: last?.end.counters };
    const hasCounters =
      readCounters !== undefined && counters.before !== undefined && counters.after !== undefined;
    return {
      seconds,
      samples: good.length,
      requestsPerSecond: perSecond,
      imagesPerSecond: perSecond * imagesPerRequest,
      ...(load.kind === "open loop" && due.length > 0
        ? { achievedShare: good.length / due.length }
        : {}),
      ...latency,
      errors: countCodes(due),
      errorsWithWarmup: Object.fromEntries(this.totals.errors),
      client,
      requestBytes: mean(requests.map(({ body }) => body.byteLength)),
      responseBytes: mean(good.map(({ bytes }) => bytes)),
      invalid: invalidReasons(client, latency.latencyMs?.p50, good.length),
      ...(hasCounters ? { counters } : {}),
    };
  }

  /**
   * Requests due between the start of one window and the end of another, however late their responses, so that a stall at the
   * end counts in full. Requests already outstanding at the start are excluded.
   */
  #dueIn({ start }: MeasuredWindow, { end }: MeasuredWindow): readonly TimedSample[] {
    return this.#kept.filter(({ dueMs }) => dueMs >= start.atMs && dueMs < end.atMs);
  }

  /** Runs one window, extended while it has too few responses, until `untilMs` at the latest. */
  async #timedWindow(seconds: number, untilMs: number): Promise<MeasuredWindow> {
    const { load } = this.options;
    const start = this.#boundary;
    const required =
      load.kind === "closed loop" ? Math.max(minResponses, load.concurrency) : minResponses;
    const endMs = start.atMs + seconds * 1_000;
    await this.#sleep(Math.min(endMs, untilMs) - clockMs());
    await this.#collect(false);
    const isOver = () => this.options.signal.aborted || clockMs() >= untilMs;
    while (this.#pending.length < required && !isOver()) {
      await this.#sleep(pollMs);
      await this.#collect(false);
    }
    const end = await this.#mark();
    const inside = this.#pending.filter(({ doneMs }) => doneMs <= end.atMs);
    this.#pending = this.#pending.filter(({ doneMs }) => doneMs > end.atMs);
    return this.#endWindow(
      inside,
      end,
      inside.length >= required && end.atMs >= endMs - timerErrorMs,
    );
  }

  #endWindow(inside: readonly TimedSample[], mark: Boundary, complete: boolean): MeasuredWindow {
    const start = this.#boundary;
    const window = makeWindow(inside, start.countedToMs, mark.atMs);
    const end = { ...mark, countedToMs: window.countedToMs };
    this.#boundary = end;
    return { window, start, end, complete };
  }

  /** Returns the boundary at the current time, with the server's counters, after collecting all responses so far. */
  async #mark(): Promise<Boundary> {
    const beforeMs = clockMs();
    const counters = await this.#readCounters();
    const atMs = (beforeMs + clockMs()) / 2;
    const { workers } = await this.#collect(true);
    return { atMs, countedToMs: this.#boundary.countedToMs, workers, counters };
  }

  /** Server counters; `undefined` on errors, because a server without metrics can still be measured. */
  async #readCounters(): Promise<unknown> {
    const { readCounters, signal } = this.options;
    if (readCounters === undefined) return undefined;
    return await unlessAborted(readCounters(), signal, countersGraceMs).catch(() => undefined);
  }

  async #collect(boundary: boolean): Promise<Collected> {
    const collected = await this.workers.collect(boundary);
    this.#addSamples(collected);
    return collected;
  }

  #addSamples({ samples }: Collected): void {
    for (const sample of samples) {
      // requests cut off by an interrupt are not errors
      if (sample.code === ownCodes.ended && this.options.signal.aborted) continue;
      this.#pending.push(sample);
      this.#kept.push(sample);
      if (isGood(sample)) continue;
      const code = codeText(sample.code);
      this.totals.errors.set(code, (this.totals.errors.get(code) ?? 0) + 1);
    }
  }

  #rejectUnreachable(failed: readonly TimedSample[]): void {
    const [first] = failed;
    if (first === undefined || !failed.every(({ code }) => unreachable.includes(code))) return;
    throw new UserError(`${this.requests.url}: ${codeText(first.code)}`);
  }

  async #sleep(ms: number): Promise<void> {
    if (ms <= 0) return;
    await sleep(ms, undefined, { signal: this.options.signal }).catch(() => {});
  }
}

/** Result of `work`, or `undefined` if it takes longer than `graceMs` after the signal is aborted. */
async function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  graceMs: number,
): Promise<T | undefined> {
  let startGracePeriod = () => {};
  let timer: NodeJS.Timeout | undefined;
  const timedOut = new Promise<undefined>((resolve) => {
    startGracePeriod = () => {
      timer = setTimeout(resolve, graceMs, undefined);
    };
    if (signal.aborted) startGracePeriod();
    else signal.addEventListener("abort", startGracePeriod, { once: true });
  });
  try {
    return await Promise.race([work, timedOut]);
  } finally {
    signal.removeEventListener("abort", startGracePeriod);
    clearTimeout(timer);
  }
}
