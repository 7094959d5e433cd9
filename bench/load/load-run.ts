import { setTimeout as sleep } from "node:timers/promises";
import { BenchError } from "../src/bench-error.ts";
import { reason } from "../src/http-client.ts";
import { describeLatency, sortedLatencies } from "./latency.ts";
import type { MeasuredLoad, MeasureOptions } from "./measure-load.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { clientUse, distrust } from "./saturation.ts";
import {
  agreement,
  agrees,
  describeWindow,
  type LoadWindow,
  makeWindow,
  requestsPerSecond,
} from "./windows.ts";
import { clockMs, ownCodes } from "./worker-messages.ts";
import type { Collected, TimedSample, Workers } from "./workers.ts";

/** The server has warmed up when two windows in a row differ by less. */
const warmDifference = 0.2;
/** Part of the ceiling that warming up may take. */
const longestWarmup = 0.3;
/** Answers of a window, failures included: it is made longer until it has them. */
const fewestAnswers = 10;
/** So long the answers to what was sent are waited for when a load ends. */
const patienceMs = 5_000;
const pollMs = 20;
/** A timer may be early. */
const timerErrorMs = 2;
/** How many windows a number of requests is divided into. */
const iterationWindows = 3;

/** A server that gives these does not listen. */
const unreachable: readonly string[] = [
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
];

/** What goes on over all runs of one load: a run ends early when another worker is needed. */
export interface Totals {
  /** When the load has to end, from its first request on, on the clock of `clockMs`. */
  endMs: number;
  warmup: { seconds: number; requests: number };
  readonly errors: Map<string, number>;
}

export function newTotals(): Totals {
  return { endMs: Number.NaN, warmup: { seconds: 0, requests: 0 }, errors: new Map() };
}

/** A moment between two windows. */
interface Boundary {
  readonly atMs: number;
  /** Of the last answer until then. */
  readonly lastDoneMs: number;
  readonly workers: Collected["workers"];
  readonly counters: unknown;
}

interface MeasuredWindow {
  readonly window: LoadWindow;
  readonly start: Boundary;
  readonly end: Boundary;
  /** As long, and with as many answers, as it has to be. */
  readonly whole: boolean;
}

/** One load, from its first request to its last answer. */
export class LoadRun {
  readonly #workers: Workers;
  readonly #requests: PreparedRequests;
  readonly #options: MeasureOptions;
  readonly #totals: Totals;
  /** Answers that belong to no window yet. */
  #pending: TimedSample[] = [];
  /** All of an open loop, which are looked at again when the last answer is there. */
  readonly #kept: TimedSample[] = [];
  #boundary: Boundary = { atMs: 0, lastDoneMs: 0, workers: [], counters: undefined };

  constructor(
    workers: Workers,
    requests: PreparedRequests,
    options: MeasureOptions,
    totals: Totals,
  ) {
    this.#workers = workers;
    this.#requests = requests;
    this.#options = options;
    this.#totals = totals;
  }

  /** @returns Cores that the busiest worker used in the end, 0..1. */
  async warmUp(): Promise<number> {
    const { durationSeconds, windowSeconds } = this.#options;
    const startMs = this.#workers.start();
    const ceilingMs = durationSeconds * 1_000;
    if (Number.isNaN(this.#totals.endMs)) this.#totals.endMs = startMs + ceilingMs;
    const untilMs = Math.min(this.#totals.endMs, startMs + ceilingMs * longestWarmup);
    const { workers } = await this.#collect(true);
    this.#boundary = { atMs: startMs, lastDoneMs: startMs, workers, counters: undefined };
    let last: MeasuredWindow;
    let before: MeasuredWindow | undefined;
    do {
      last = await this.#timedWindow(windowSeconds, untilMs);
      this.#totals.warmup.requests += last.window.good.length;
      if (last.window.good.length === 0) this.#refuseUnreachable(last.window.failed);
      if (before !== undefined && isWarm([before.window, last.window])) break;
      before = last;
    } while (this.#boundary.atMs < untilMs && !this.#options.signal.aborted);
    this.#totals.warmup.seconds += (this.#boundary.atMs - startMs) / 1_000;
    return clientUse([last], undefined).busiestWorkerCores;
  }

  /** After {@link warmUp}. */
  async measure(): Promise<MeasuredLoad> {
    const { signal, stableWindows, tolerance, maxWindows, windowSeconds, iterations, onWindow } =
      this.#options;
    const windows: MeasuredWindow[] = [];
    const { imagesPerRequest } = this.#requests;
    const described = () => windows.map(({ window }) => describeWindow(window, imagesPerRequest));
    const measuredWindows = () => Math.min(windows.length, wanted);
    const counts = iterations === undefined ? [] : shares(iterations, iterationWindows);
    const wanted = iterations === undefined ? stableWindows : counts.length;
    const most = iterations === undefined ? maxWindows : counts.length;
    while (windows.length < most && !signal.aborted) {
      const isLast = clockMs() + windowSeconds * 1_000 > this.#totals.endMs;
      if (iterations === undefined && isLast && windows.length > 0) break;
      const next =
        iterations === undefined
          ? await this.#timedWindow(windowSeconds, this.#totals.endMs)
          : await this.#countedWindow(counts[windows.length] ?? 1);
      if (!next.whole && windows.length > 0 && iterations === undefined) break;
      windows.push(next);
      onWindow?.(describeWindow(next.window, imagesPerRequest), windows.length - 1);
      const enough = windows.length >= stableWindows;
      if (enough && agrees(agreement(described().slice(-stableWindows)), tolerance)) {
        if (iterations === undefined) break;
      }
      if (!next.whole) break;
    }
    await this.stop();

    const measured = windows.slice(windows.length - measuredWindows());
    const found = agreement(measured.map(({ window }) => describeWindow(window, imagesPerRequest)));
    const verdict = signal.aborted
      ? "interrupted"
      : measured.length < wanted || measured.some(({ whole }) => !whole)
        ? "short"
        : agrees(found, tolerance)
          ? "stable"
          : "unstable";
    return {
      ...this.#figures(measured),
      warmup: this.#totals.warmup,
      windows: described(),
      measuredWindows: measured.length,
      stability: { verdict, ...found, tolerance },
    };
  }

  /** Send no more, and wait for answers. */
  async stop(): Promise<void> {
    this.#take(await this.#workers.stop(this.#options.signal.aborted ? 0 : patienceMs));
  }

  #figures(
    measured: readonly MeasuredWindow[],
  ): Omit<MeasuredLoad, "warmup" | "windows" | "measuredWindows" | "stability"> {
    const { load, readCounters } = this.#options;
    const { imagesPerRequest, requests } = this.#requests;
    const good = measured.flatMap(({ window }) => window.good);
    const failed = measured.flatMap(({ window }) => window.failed);
    const seconds = measured.reduce((sum, { window }) => sum + window.seconds, 0);
    const perSecond = requestsPerSecond({ good, failed, seconds });
    const latency = describeLatency(sortedLatencies(good));
    const client = clientUse(measured, load.kind === "open loop" ? load : undefined);
    const [first, last] = [measured[0], measured.at(-1)];
    const counters = { before: first?.start.counters, after: last?.end.counters };
    const hasCounters =
      readCounters !== undefined && counters.before !== undefined && counters.after !== undefined;
    return {
      seconds,
      samples: good.length,
      requestsPerSecond: perSecond,
      imagesPerSecond: perSecond * imagesPerRequest,
      ...(load.kind === "open loop" && first !== undefined && last !== undefined
        ? { achievedShare: this.#achieved(first.start.atMs, last.end.atMs) }
        : {}),
      ...latency,
      errors: countCodes(failed),
      errorsInAll: Object.fromEntries(this.#totals.errors),
      client,
      requestBytes: mean(requests.map(({ body }) => body.byteLength)),
      responseBytes: mean(good.map(({ bytes }) => bytes)),
      invalid: distrust(client, latency.latencyMs?.p50, good.length),
      ...(hasCounters ? { counters } : {}),
    };
  }

  /** Of the requests that were due between two times, the part that was answered well, however late. */
  #achieved(startMs: number, endMs: number): number | undefined {
    const due = this.#kept.filter(({ dueMs }) => dueMs >= startMs && dueMs < endMs);
    return due.length === 0 ? undefined : due.filter(({ code }) => code === "").length / due.length;
  }

  /** A window of some seconds, or longer where answers are few; it ends at `untilMs` at the latest. */
  async #timedWindow(seconds: number, untilMs: number): Promise<MeasuredWindow> {
    const { load } = this.#options;
    const start = this.#boundary;
    const fewest =
      load.kind === "closed loop" ? Math.max(fewestAnswers, 2 * load.concurrency) : fewestAnswers;
    const endMs = start.atMs + seconds * 1_000;
    await this.#sleep(Math.min(endMs, untilMs) - clockMs());
    await this.#collect(false);
    const over = () => this.#options.signal.aborted || clockMs() >= untilMs;
    while (this.#pending.length < fewest && !over()) {
      await this.#sleep(pollMs);
      await this.#collect(false);
    }
    const end = await this.#mark();
    const inside = this.#pending.filter(({ doneMs }) => doneMs <= end.atMs);
    this.#pending = this.#pending.filter(({ doneMs }) => doneMs > end.atMs);
    return this.#cut(inside, end, inside.length >= fewest && end.atMs >= endMs - timerErrorMs);
  }

  /** A window of so many requests. */
  async #countedWindow(count: number): Promise<MeasuredWindow> {
    const over = () => this.#options.signal.aborted || clockMs() >= this.#totals.endMs;
    while (this.#pending.length < count && !over()) {
      await this.#sleep(pollMs);
      await this.#collect(false);
    }
    const mark = await this.#mark();
    const inOrder = this.#pending.sort((a, b) => a.doneMs - b.doneMs);
    const inside = inOrder.slice(0, count);
    this.#pending = inOrder.slice(count);
    const whole = inside.length === count;
    const atMs = whole ? (inside.at(-1)?.doneMs ?? mark.atMs) : mark.atMs;
    return this.#cut(inside, { ...mark, atMs }, whole);
  }

  #cut(inside: readonly TimedSample[], mark: Boundary, whole: boolean): MeasuredWindow {
    const start = this.#boundary;
    const window = makeWindow(inside, {
      startMs: start.atMs,
      endMs: mark.atMs,
      lastDoneMs: start.lastDoneMs,
    });
    const lastDoneMs = window.good.reduce(
      (last, { doneMs }) => Math.max(last, doneMs),
      start.lastDoneMs,
    );
    const end = { ...mark, lastDoneMs };
    this.#boundary = end;
    return { window, start, end, whole };
  }

  /** Now, with the counters of the server, and every answer until now. */
  async #mark(): Promise<Boundary> {
    const beforeMs = clockMs();
    // a server that cannot say how it is doing is measured all the same
    const counters = await this.#options.readCounters?.().catch(() => undefined);
    const atMs = (beforeMs + clockMs()) / 2;
    const { workers } = await this.#collect(true);
    return { atMs, lastDoneMs: this.#boundary.lastDoneMs, workers, counters };
  }

  async #collect(boundary: boolean): Promise<Collected> {
    const collected = await this.#workers.collect(boundary);
    this.#take(collected);
    return collected;
  }

  #take({ samples }: Collected): void {
    for (const sample of samples) {
      this.#pending.push(sample);
      if (this.#options.load.kind === "open loop") this.#kept.push(sample);
      // that the load ended is nobody's error
      if (sample.code === "" || sample.code === ownCodes.ended) continue;
      const code = shownCode(sample.code);
      this.#totals.errors.set(code, (this.#totals.errors.get(code) ?? 0) + 1);
    }
  }

  #refuseUnreachable(failed: readonly TimedSample[]): void {
    const [first] = failed;
    if (first === undefined || !failed.every(({ code }) => unreachable.includes(code))) return;
    throw new BenchError(`${this.#requests.url}: ${shownCode(first.code)}`);
  }

  async #sleep(ms: number): Promise<void> {
    if (ms <= 0) return;
    await sleep(ms, undefined, { signal: this.#options.signal }).catch(() => {});
  }
}

function isWarm(windows: readonly LoadWindow[]): boolean {
  const found = agreement(windows.map((window) => describeWindow(window, 1)));
  // each is half of the difference away from the mean
  return found !== undefined && found.throughputDeviation <= warmDifference / 2;
}

/** A number, divided into parts that are as equal as can be. */
function shares(total: number, parts: number): readonly number[] {
  const count = Math.min(parts, total);
  return Array.from(
    { length: count },
    (_, i) => Math.floor((total * (i + 1)) / count) - Math.floor((total * i) / count),
  );
}

function countCodes(failed: readonly TimedSample[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { code } of failed) counts[shownCode(code)] = (counts[shownCode(code)] ?? 0) + 1;
  return counts;
}

/** The code of a request that failed, for people: `connection refused`, `503`, `UNAVAILABLE`. */
function shownCode(code: string): string {
  return reason(Object.assign(new Error(code), { code }));
}

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}
