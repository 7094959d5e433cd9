import type { LoadShape } from "../record/bench-record.ts";
import { startMetronome } from "./alarm.ts";
import { arrivals, shareOf } from "./arrivals.ts";
import type { Connection, OpenConnection } from "./connection.ts";
import { grpcConnections } from "./grpc-connection.ts";
import { httpConnections } from "./http-connection.ts";
import type { PreparedRequests } from "./prepared-requests.ts";
import { clockMs, ownCodes, sampleWidth } from "./worker-messages.ts";

export interface SenderOptions {
  readonly open: OpenConnection;
  /** How many requests there are; they are sent in turn, and around again. */
  readonly requests: number;
  readonly load: LoadShape;
  /** This sender's number, and how many share the load. */
  readonly index: number;
  readonly workers: number;
  /** @default 60 seconds */
  readonly timeoutMs?: number;
  /**
   * Open loop: requests without an answer, of all workers; those beyond it are not sent.
   *
   * @default 10 000
   */
  readonly openLimit?: number;
  /** There are so many samples that they should be taken. */
  readonly onBufferFull?: () => void;
}

/** Sends requests, and keeps a sample of each. */
export interface Sender {
  start(atMs: number): void;
  /** Samples since the last time, as rows of `sampleColumns`. */
  take(): Float64Array;
  /** Of the code n is `codes[n - 1]`. */
  readonly codes: readonly string[];
  /** Sends no more; resolves when every request has its answer. `cut` ends the wait. */
  stop(cut: AbortSignal): Promise<void>;
}

const defaultTimeoutMs = 60_000;
const defaultOpenLimit = 10_000;
const timeoutCheckMs = 500;
/** A server that rejects at once must not be sent ten thousand requests per second. */
const failedPauseMs = 100;
const manySamples = 1_000;

/** Opens the connections that the requests need. */
export function connectionOpener(requests: PreparedRequests): OpenConnection {
  return (requests.transport === "grpc" ? grpcConnections : httpConnections)(requests);
}

export function createSender(options: SenderOptions): Sender {
  const { load, requests, index, workers } = options;
  const log = new SampleLog(options.onBufferFull);
  const slots: Slot[] = [];
  let next = index;
  let stopping = false;
  let allAnswered: (() => void) | undefined;
  let afterEnd: (slot: Slot, failed: boolean) => void;
  let busy = 0;

  const newSlot = (): Slot => {
    const end = (code: string, bytes: number, failed: boolean) => {
      log.add(slot.dueMs, slot.sentMs, clockMs(), bytes, code);
      slot.busy = false;
      busy -= 1;
      afterEnd(slot, failed);
      if (busy === 0) allAnswered?.();
    };
    const slot: Slot = {
      connection: options.open({
        answered: (code, bytes) => end(code, bytes, code !== ""),
        failed: (code) => end(code, 0, true),
      }),
      dueMs: 0,
      sentMs: 0,
      busy: false,
    };
    slots.push(slot);
    return slot;
  };
  const send = (slot: Slot, dueMs: number | undefined) => {
    slot.sentMs = clockMs();
    slot.dueMs = dueMs ?? slot.sentMs;
    slot.busy = true;
    busy += 1;
    const request = next % requests;
    next += workers;
    slot.connection.send(request);
  };

  const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
  const timeouts = setInterval(() => {
    const latest = clockMs() - timeoutMs;
    for (const slot of slots) {
      if (slot.busy && slot.sentMs < latest) slot.connection.abandon(ownCodes.timeout);
    }
  }, timeoutCheckMs);
  timeouts.unref();

  let begin: (atMs: number) => void;
  let endSending: () => void = () => {};
  if (load.kind === "closed loop") {
    const own = Math.floor((load.concurrency + workers - 1 - index) / workers);
    afterEnd = (slot, failed) => {
      if (stopping) return;
      // the pause belongs to no request; a failure that took its time needs none
      if (failed && clockMs() - slot.sentMs < failedPauseMs) {
        setTimeout(() => {
          if (!stopping) send(slot, undefined);
        }, failedPauseMs);
      } else send(slot, undefined);
    };
    begin = () => {
      for (let i = 0; i < own && !stopping; i++) send(newSlot(), undefined);
    };
  } else {
    const limit = Math.ceil((options.openLimit ?? defaultOpenLimit) / workers);
    const free: Slot[] = [];
    afterEnd = (slot) => {
      free.push(slot);
    };
    begin = (atMs) => {
      const times = shareOf(arrivals(load), index, workers);
      let dueMs = atMs + times.next().value!;
      endSending = startMetronome(dueMs, () => {
        for (const now = clockMs(); dueMs <= now && !stopping; ) {
          if (busy < limit) send(free.pop() ?? newSlot(), dueMs);
          else log.add(dueMs, now, now, 0, ownCodes.tooManyOpen);
          dueMs = atMs + times.next().value!;
        }
        return dueMs;
      });
    };
  }

  return {
    start(atMs) {
      setTimeout(() => !stopping && begin(atMs), Math.max(0, atMs - clockMs() - 1));
    },
    take: () => log.take(),
    codes: log.codes,
    async stop(cut) {
      stopping = true;
      endSending();
      if (busy > 0 && !cut.aborted) {
        await new Promise<void>((resolve) => {
          allAnswered = resolve;
          cut.addEventListener("abort", () => resolve(), { once: true });
        });
      }
      for (const slot of slots) if (slot.busy) slot.connection.abandon(ownCodes.ended);
      for (const { connection } of slots) connection.close();
      clearInterval(timeouts);
    },
  };
}

/** A connection, and the request that it carries. */
interface Slot {
  readonly connection: Connection;
  dueMs: number;
  sentMs: number;
  busy: boolean;
}

/** Samples, as rows of numbers: an object for each would keep the garbage collector busy. */
class SampleLog {
  readonly codes: string[] = [];
  readonly #numbers = new Map<string, number>([["", 0]]);
  readonly #onMany: (() => void) | undefined;
  #rows = new Float64Array(manySamples * sampleWidth);
  #used = 0;

  constructor(onMany: (() => void) | undefined) {
    this.#onMany = onMany;
  }

  add(dueMs: number, sentMs: number, doneMs: number, bytes: number, code: string): void {
    if (this.#used === this.#rows.length) this.#onMany?.();
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
    const taken = this.#rows.slice(0, this.#used);
    this.#used = 0;
    return taken;
  }
}
