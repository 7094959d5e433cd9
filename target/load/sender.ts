import type { LoadShape } from "../../contract/load-shape.ts";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import { startMetronome } from "./alarm.ts";
import { arrivals, shareOf } from "./arrivals.ts";
import type { Channels } from "./channels.ts";
import type { Connection, OpenConnection } from "./connection.ts";
import { grpcConnections } from "./grpc-connection.ts";
import { httpConnections, type JudgeResponse } from "./http-connection.ts";
import { clockMs, ownCodes, sampleWidth } from "./worker-messages.ts";

export interface SenderOptions {
  readonly open: OpenConnection;
  /** Number of prepared requests; they are sent in order, repeatedly. */
  readonly requests: number;
  readonly load: LoadShape;
  /** Index of this sender among the `workers` that share the load. */
  readonly index: number;
  readonly workers: number;
  /** @default 60 seconds */
  readonly timeoutMs?: number;
  /**
   * Open loop: maximum number of outstanding requests of all workers; requests beyond it are counted, not sent.
   *
   * @default 10 000
   */
  readonly openLimit?: number;
  /** Called when the sample buffer is full, so that the owner calls {@link Sender.take}. */
  readonly onBufferFull?: () => void;
}

/** Sends requests and records a sample of each. */
export interface Sender {
  start(atMs: number): void;
  /** Returns the samples since the last call, as rows of `sampleColumns`. */
  take(): Float64Array;
  /** Error codes: the number n in a sample is `codes[n - 1]`. */
  readonly codes: readonly string[];
  /** Sends no more requests; resolves when none is outstanding. `cut` ends the wait. */
  stop(cut: AbortSignal): Promise<void>;
}

const defaultTimeoutMs = 60_000;
const defaultOpenLimit = 10_000;
const timeoutCheckMs = 500;
/** Pause after a fast failure, so that a rejecting server does not receive ten thousand requests per second. */
const failedPauseMs = 100;
const initialSamples = 1_000;

/**
 * Returns the function that opens connections for the requests' transport.
 *
 * @param channels - Default: one connection per outstanding request.
 * @param judge - Judges HTTP responses.
 */
export function connectionOpener(
  requests: PreparedRequests,
  channels?: Channels,
  judge?: JudgeResponse,
): OpenConnection {
  if (requests.transport === "grpc") return grpcConnections(requests, channels);
  return httpConnections(requests, channels, judge);
}

export function createSender(options: SenderOptions): Sender {
  const log = new SampleLog(options.onBufferFull);
  const pool = new ConnectionPool(options, log);
  const { load } = options;
  const schedule =
    load.kind === "closed loop"
      ? closedLoop(load, options, pool)
      : openLoop(load, options, pool, log);
  let stopped = false;
  return {
    start(atMs) {
      setTimeout(() => !stopped && schedule.begin(atMs), Math.max(0, atMs - clockMs() - 1));
    },
    take: () => log.take(),
    codes: log.codes,
    async stop(cut) {
      stopped = true;
      schedule.end();
      await pool.drain(cut);
    },
  };
}

/** Decides when requests are sent. */
interface Schedule {
  begin(atMs: number): void;
  end(): void;
}

/** Each client sends its next request as soon as the previous one has ended. */
function closedLoop(
  { concurrency }: Extract<LoadShape, { kind: "closed loop" }>,
  { index, workers }: SenderOptions,
  pool: ConnectionPool,
): Schedule {
  const clients = Math.floor((concurrency + workers - 1 - index) / workers);
  let ended = false;
  pool.onEnd = (slot, failed) => {
    if (ended) return;
    // not part of a latency; a slow failure needs no pause
    if (failed && clockMs() - slot.sentMs < failedPauseMs) {
      setTimeout(() => {
        if (!ended) pool.send(slot);
      }, failedPauseMs);
    } else pool.send(slot);
  };
  return {
    begin() {
      for (let i = 0; i < clients && !ended; i++) pool.send(pool.open());
    },
    end() {
      ended = true;
    },
  };
}

/** Requests are sent at predetermined times, independent of responses. */
function openLoop(
  load: Extract<LoadShape, { kind: "open loop" }>,
  { index, workers, openLimit = defaultOpenLimit }: SenderOptions,
  pool: ConnectionPool,
  log: SampleLog,
): Schedule {
  const limit = Math.ceil(openLimit / workers);
  const idle: Slot[] = [];
  let ended = false;
  let stopMetronome = () => {};
  pool.onEnd = (slot) => {
    idle.push(slot);
  };
  return {
    begin(atMs) {
      const times = shareOf(arrivals(load), index, workers);
      let dueMs = atMs + times.next().value!;
      stopMetronome = startMetronome(dueMs, () => {
        for (const now = clockMs(); dueMs <= now && !ended; ) {
          if (pool.busy < limit) pool.send(idle.pop() ?? pool.open(), dueMs);
          else log.add(dueMs, now, now, 0, ownCodes.tooManyOpen);
          dueMs = atMs + times.next().value!;
        }
        return dueMs;
      });
    },
    end() {
      ended = true;
      stopMetronome();
    },
  };
}

/** Clients of a sender; each has one outstanding request at a time, on its own or a shared connection. */
class ConnectionPool {
  /** Called when a request of a slot has ended. */
  onEnd: (slot: Slot, failed: boolean) => void = () => {};
  /** Number of outstanding requests. */
  busy = 0;
  readonly #slots: Slot[] = [];
  readonly #timeoutTimer: NodeJS.Timeout;
  #next: number;
  #onIdle = () => {};

  constructor(
    private readonly options: SenderOptions,
    private readonly log: SampleLog,
  ) {
    this.#next = options.index;
    this.#timeoutTimer = setInterval(() => this.#abandonOverdue(), timeoutCheckMs);
    this.#timeoutTimer.unref();
  }

  open(): Slot {
    const end = (code: string, bytes: number, failed: boolean) => {
      this.log.add(slot.dueMs, slot.sentMs, clockMs(), bytes, code);
      slot.busy = false;
      this.busy -= 1;
      this.onEnd(slot, failed);
      if (this.busy === 0) this.#onIdle();
    };
    const slot: Slot = {
      connection: this.options.open({
        onAnswer: (code, bytes) => end(code, bytes, code !== ""),
        onFailure: (code) => end(code, 0, true),
      }),
      dueMs: 0,
      sentMs: 0,
      busy: false,
    };
    this.#slots.push(slot);
    return slot;
  }

  /** @param dueMs - Absent: due when sent. */
  send(slot: Slot, dueMs?: number): void {
    slot.sentMs = clockMs();
    slot.dueMs = dueMs ?? slot.sentMs;
    slot.busy = true;
    this.busy += 1;
    const request = this.#next % this.options.requests;
    this.#next += this.options.workers;
    slot.connection.send(request);
  }

  /** Waits for outstanding requests until `cut` is aborted, then closes every connection. */
  async drain(cut: AbortSignal): Promise<void> {
    if (this.busy > 0 && !cut.aborted) {
      let end = () => {};
      await new Promise<void>((resolve) => {
        end = resolve;
        this.#onIdle = end;
        cut.addEventListener("abort", end);
      });
      cut.removeEventListener("abort", end);
    }
    for (const slot of this.#slots) if (slot.busy) slot.connection.abandon(ownCodes.ended);
    for (const { connection } of this.#slots) connection.close();
    clearInterval(this.#timeoutTimer);
  }

  #abandonOverdue(): void {
    const latest = clockMs() - (this.options.timeoutMs ?? defaultTimeoutMs);
    for (const slot of this.#slots) {
      if (slot.busy && slot.sentMs < latest) slot.connection.abandon(ownCodes.timeout);
    }
  }
}

/** A connection and its current or most recent request. */
interface Slot {
  readonly connection: Connection;
  dueMs: number;
  sentMs: number;
  busy: boolean;
}

/** Samples as rows of numbers, because one object per sample would burden the garbage collector. */
class SampleLog {
  readonly codes: string[] = [];
  readonly #numbers = new Map<string, number>([["", 0]]);
  #rows = new Float64Array(initialSamples * sampleWidth);
  #used = 0;

  constructor(private readonly onFull: (() => void) | undefined) {}

  add(dueMs: number, sentMs: number, doneMs: number, bytes: number, code: string): void {
    if (this.#used === this.#rows.length) this.onFull?.();
    if (this.#used === this.#rows.length) {
      const larger = new Float64Array(this.#rows.length * 2);
      larger.set(this.#rows);
      this.#rows = larger;
    }
    let number = this.#numbers.get(code);
    if (number === undefined) {
      number = this.codes.push(code);
      this.#numbers.set(code, number);
    }
    const rows = this.#rows;
    const at = this.#used;
    rows[at] = dueMs;
    rows[at + 1] = sentMs;
    rows[at + 2] = doneMs;
    rows[at + 3] = bytes;
    rows[at + 4] = number;
    this.#used = at + sampleWidth;
  }

  take(): Float64Array {
    const samples = this.#rows.slice(0, this.#used);
    this.#used = 0;
    return samples;
  }
}
