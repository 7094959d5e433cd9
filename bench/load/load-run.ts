import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../../contract/user-error.ts";
import { mean } from "../stats/statistics.ts";
import { describeLatency, sortedLatencies } from "./latency.ts";
import type { MeasuredLoad, MeasureOptions } from "./measured-load.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { countCodes, isGood, shownCode, type TimedSample } from "./samples.ts";
import { clientUse, distrust } from "./saturation.ts";
import { agreement, agrees, describeWindow, type LoadWindow, makeWindow } from "./windows.ts";
import { clockMs, ownCodes } from "./worker-messages.ts";
import type { Collected, Workers } from "./workers.ts";

/** The server has warmed up when two windows in a row differ by less. */
const warmDifference = 0.2;
/** Part of the ceiling that warming up may take. */
const longestWarmup = 0.3;
/** Answers of a window, failures included: it is made longer until it has them. */
const fewestAnswers = 10;
/** So long the answers to what was sent are waited for when a load ends, or longer where they took long before. */
const patienceMs = 5_000;
const patienceLatencies = 2;
const longestPatienceMs = 60_000;
/** So long the server's counters are waited for after Ctrl-C. */
const countersGraceMs = 500;
const pollMs = 20;
/** A timer may be early. */
const timerErrorMs = 2;

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
  /** Where the window that ends here was counted to. */
  readonly countedToMs: number;
  readonly workers: Collected["workers"];
  readonly counters: unknown;
}

interface MeasuredWindow {
  readonly window: LoadWindow;
  readonly start: Boundary;
  readonly end: Boundary;
  /** As long, and with as many answers, as it has to be. */
  readonly complete: boolean;
}

/** One load, from its first request to its last answer. */
export class LoadRun {
  readonly #workers: Workers;
  readonly #requests: PreparedRequests;
  readonly #options: MeasureOptions;
  readonly #totals: Totals;
  /** Answers that belong to no window yet. */
  #pending: TimedSample[] = [];
  /** All, which are looked at again when the last answer is there. */
  #kept: TimedSample[] = [];
  #boundary: Boundary = { atMs: 0, countedToMs: 0, workers: [], counters: undefined };

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
    const { durationSeconds, windowSeconds, warmupSeconds } = this.#options;
    const startMs = this.#workers.start();
    const ceilingMs = durationSeconds * 1_000;
    const warmupMs =
      warmupSeconds === undefined ? ceilingMs * longestWarmup : warmupSeconds * 1_000;
    if (Number.isNaN(this.#totals.endMs)) this.#totals.endMs = startMs + ceilingMs;
    const untilMs = Math.min(this.#totals.endMs, startMs + warmupMs);
    const { workers } = await this.#collect(true);
    this.#boundary = { atMs: startMs, countedToMs: startMs, workers, counters: undefined };
    let last: MeasuredWindow;
    let before: MeasuredWindow | undefined;
    do {
      last = await this.#timedWindow(windowSeconds, untilMs);
      this.#totals.warmup.requests += last.window.good.length;
      if (last.window.good.length === 0) this.#refuseUnreachable(last.window.failed);
      if (
        warmupSeconds === undefined &&
        before !== undefined &&
        isWarm([before.window, last.window])
      )
        break;
      before = last;
    } while (this.#boundary.atMs < untilMs && !this.#options.signal.aborted);
    this.#totals.warmup.seconds += (this.#boundary.atMs - startMs) / 1_000;
    return clientUse([last], undefined).busiestWorkerCores;
  }

  /** After {@link warmUp}. */
  async measure(): Promise<MeasuredLoad> {
    const { signal, stableWindows, tolerance, maxWindows, windowSeconds, onWindow } = this.#options;
    const windows: MeasuredWindow[] = [];
    this.#kept = this.#kept.filter(({ doneMs }) => doneMs > this.#boundary.atMs);
    const { imagesPerRequest } = this.#requests;
    const soFar = () => windows.map(({ window }) => describeWindow(window, imagesPerRequest));
    while (windows.length < maxWindows && !signal.aborted) {
      const isLast = clockMs() + windowSeconds * 1_000 > this.#totals.endMs;
      if (isLast && windows.length > 0) break;
      const next = await this.#timedWindow(windowSeconds, this.#totals.endMs);
      if (!next.complete && windows.length > 0) break;
      windows.push(next);
      onWindow?.(describeWindow(next.window, imagesPerRequest), windows.length - 1);
      const enough = windows.length >= stableWindows;
      if (enough && agrees(agreement(soFar().slice(-stableWindows)), tolerance)) break;
      if (!next.complete) break;
    }
    await this.stop();

    const measured = windows.slice(-stableWindows);
    const described = windows.map((one) =>
      describeWindow(one.window, imagesPerRequest, this.#dueIn(one, one).filter(isGood)),
    );
    const found = agreement(described.slice(-stableWindows));
    const verdict = signal.aborted
      ? "interrupted"
      : measured.length < stableWindows || measured.some(({ complete }) => !complete)
        ? "short"
        : agrees(found, tolerance)
          ? "stable"
          : "unstable";
    return {
      ...this.#figures(measured),
      warmup: this.#totals.warmup,
      windows: described,
      measuredWindows: measured.length,
      stability: { verdict, ...found, tolerance },
    };
  }

  /** Send no more, and wait for answers. */
  async stop(): Promise<void> {
    const { signal } = this.#options;
    await this.#collect(false);
    const slowestMs = this.#kept.reduce(
      (most, { dueMs, doneMs }) => Math.max(most, doneMs - dueMs),
      0,
    );
    const patience = Math.min(
      Math.max(patienceMs, patienceLatencies * slowestMs),
      longestPatienceMs,
    );
    const stopped = this.#workers.stop(signal.aborted ? 0 : patience);
    // after Ctrl-C in the middle of it nobody waits: the answers that are missing then are left out
    const rest = signal.aborted ? await stopped : await unlessAborted(stopped, signal, 0);
    if (rest !== undefined) this.#take(rest);
  }

  #figures(
    measured: readonly MeasuredWindow[],
  ): Omit<MeasuredLoad, "warmup" | "windows" | "measuredWindows" | "stability"> {
    const { load, readCounters } = this.#options;
    const { imagesPerRequest, requests } = this.#requests;
    const due = this.#measuredRequests(measured);
    const good = due.filter(isGood);
    const seconds = measured.reduce((sum, { window }) => sum + window.seconds, 0);
    const answers = measured.reduce((sum, { window }) => sum + window.good.length, 0);
    const perSecond = seconds > 0 ? answers / seconds : 0;
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
      ...(load.kind === "open loop" && due.length > 0
        ? { achievedShare: good.length / due.length }
        : {}),
      ...latency,
      errors: countCodes(due),
      errorsWithWarmup: Object.fromEntries(this.#totals.errors),
      client,
      requestBytes: mean(requests.map(({ body }) => body.byteLength)),
      responseBytes: mean(good.map(({ bytes }) => bytes)),
      invalid: distrust(client, latency.latencyMs?.p50, good.length),
      ...(hasCounters ? { counters } : {}),
    };
  }

  /**
   * The requests that the figures are of: those that were due in the measured windows, however late their answers came. So
   * a stall at the very end is seen whole, and as many that were open at the start are left out as at the end are taken in.
   */
  #measuredRequests(measured: readonly MeasuredWindow[]): readonly TimedSample[] {
    const [first, last] = [measured[0], measured.at(-1)];
    return first === undefined || last === undefined ? [] : this.#dueIn(first, last);
  }

  /** The requests that were due from the start of one window to the end of another. */
  #dueIn({ start }: MeasuredWindow, { end }: MeasuredWindow): readonly TimedSample[] {
    return this.#kept.filter(({ dueMs }) => dueMs >= start.atMs && dueMs < end.atMs);
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

  #cut(inside: readonly TimedSample[], mark: Boundary, complete: boolean): MeasuredWindow {
    const start = this.#boundary;
    const window = makeWindow(inside, { sinceMs: start.countedToMs, endMs: mark.atMs });
    const end = { ...mark, countedToMs: window.countedToMs };
    this.#boundary = end;
    return { window, start, end, complete };
  }

  /** Now, with the counters of the server, and every answer until now. */
  async #mark(): Promise<Boundary> {
    const beforeMs = clockMs();
    const counters = await this.#readCounters();
    const atMs = (beforeMs + clockMs()) / 2;
    const { workers } = await this.#collect(true);
    return { atMs, countedToMs: this.#boundary.countedToMs, workers, counters };
  }

  /** A server that cannot say how it is doing is measured all the same. */
  async #readCounters(): Promise<unknown> {
    const { readCounters, signal } = this.#options;
    if (readCounters === undefined) return undefined;
    return await unlessAborted(readCounters(), signal, countersGraceMs).catch(() => undefined);
  }

  async #collect(boundary: boolean): Promise<Collected> {
    const collected = await this.#workers.collect(boundary);
    this.#take(collected);
    return collected;
  }

  #take({ samples }: Collected): void {
    for (const sample of samples) {
      // that the load was ended is nobody's error
      if (sample.code === ownCodes.ended && this.#options.signal.aborted) continue;
      this.#pending.push(sample);
      this.#kept.push(sample);
      if (isGood(sample)) continue;
      const code = shownCode(sample.code);
      this.#totals.errors.set(code, (this.#totals.errors.get(code) ?? 0) + 1);
    }
  }

  #refuseUnreachable(failed: readonly TimedSample[]): void {
    const [first] = failed;
    if (first === undefined || !failed.every(({ code }) => unreachable.includes(code))) return;
    throw new UserError(`${this.#requests.url}: ${shownCode(first.code)}`);
  }

  async #sleep(ms: number): Promise<void> {
    if (ms <= 0) return;
    await sleep(ms, undefined, { signal: this.#options.signal }).catch(() => {});
  }
}

/** What some work gives, or nothing when it is not done so long after Ctrl-C. */
async function unlessAborted<T>(
  work: Promise<T>,
  signal: AbortSignal,
  graceMs: number,
): Promise<T | undefined> {
  let giveUp = () => {};
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<undefined>((resolve) => {
    giveUp = () => {
      timer = setTimeout(resolve, graceMs, undefined);
    };
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
  });
  try {
    return await Promise.race([work, tooLate]);
  } finally {
    signal.removeEventListener("abort", giveUp);
    clearTimeout(timer);
  }
}

function isWarm(windows: readonly LoadWindow[]): boolean {
  const found = agreement(windows.map((window) => describeWindow(window, 1)));
  // each is half of the difference away from the mean
  return found !== undefined && found.throughputDeviation <= warmDifference / 2;
}
