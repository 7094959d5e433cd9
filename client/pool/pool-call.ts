import { setTimeout as sleep } from "node:timers/promises";
import { messageOf } from "../../contract/user-error.ts";
import { type Deadline, endedError, startDeadline } from "../triton/deadline.ts";
import { type CallOptions, TritonError } from "../triton/transport.ts";
import { callFailureOf } from "./call-failure.ts";
import type { PooledTriton, TritonCall } from "./pooled-triton.ts";

export interface PoolCallOptions<T> extends CallOptions {
  /** Returns why a response is not valid. @default - every response is valid */
  readonly problemOf?: ((response: T) => string | undefined) | undefined;
}

/** Attempt of a call on one server. */
export interface Attempt {
  readonly triton: PooledTriton;
  readonly startedAt: number;
}

/** Pool as used by its calls. */
export interface CallUpstreams {
  /** All targets, for messages. */
  readonly target: string;
  /** Time without a response after which a call is also sent to another server; infinite if there is none. */
  hedgeMs(timeoutMs: number): number;
  /** Waits for a server in rotation; resolves without one when the pool is closed or the signal is aborted. */
  next(signal: AbortSignal, avoid: ReadonlySet<PooledTriton>): Promise<PooledTriton | undefined>;
  /** Returns a server in rotation that is not in `excluded`, and preferably not in `avoid`. */
  other(
    excluded: ReadonlySet<PooledTriton>,
    avoid: ReadonlySet<PooledTriton>,
  ): PooledTriton | undefined;
  /** Like {@link other}, waiting for one that is not in rotation at present; at most {@link hedgeMs}. */
  otherSoon(
    excluded: ReadonlySet<PooledTriton>,
    avoid: ReadonlySet<PooledTriton>,
    options: Required<CallOptions>,
  ): Promise<PooledTriton | undefined>;
  /** Called when an attempt has ended and the caller has not cancelled it. */
  onAttemptEnd(triton: PooledTriton, succeeded: boolean): void;
  /** Called when the server of an attempt has responded. */
  onAnswer(attempt: Attempt): void;
  /** Called when an attempt failed or has no response, and another server answered the same call. */
  onOvertaken(attempt: Attempt, reason: string, isHang: boolean): void;
}

interface RunningAttempt<T> extends Attempt {
  readonly outcome: Promise<Outcome<T>>;
  abandon(): void;
}

type Outcome<T> = { readonly attempt: RunningAttempt<T> } & (
  | { readonly response: T }
  | { readonly error: unknown }
);

const firstBackoffMs = 20;
const maxBackoffMs = 500;

/** Idempotent call on a server of a pool, repeated or hedged on others. */
export class PoolCall<T> {
  readonly #due: number;
  readonly #deadline: Deadline;
  readonly #running = new Set<RunningAttempt<T>>();
  readonly #failed: { readonly attempt: Attempt; readonly reason: string }[] = [];
  readonly #tried = new Set<PooledTriton>();
  /** Servers that received the call and failed. */
  readonly #faulty = new Set<PooledTriton>();
  #mayRepeat = true;
  /** First invalid response; returned if no server has a valid one. */
  #invalid: { readonly response: T } | undefined;
  /** Whether the last server that could be tried has failed. */
  #isOver = false;
  #backoffMs = firstBackoffMs;

  constructor(
    private readonly upstreams: CallUpstreams,
    /** Name of the model or the call, for messages. */
    private readonly subject: string,
    private readonly call: TritonCall<T>,
    private readonly options: PoolCallOptions<T>,
  ) {
    this.#due = performance.now() + options.timeoutMs;
    this.#deadline = startDeadline(options);
  }

  /** @throws {TritonError} */
  async run(): Promise<T> {
    const hedge = repeatedTimer(this.upstreams.hedgeMs(this.options.timeoutMs));
    try {
      for (;;) {
        if (this.#running.size === 0) this.#start(await this.#next());
        const outcome = await this.#nextOutcome(hedge.elapsed);
        if (outcome === undefined) {
          if (this.#running.size === 1) this.#startOther();
          hedge.restart();
          continue;
        }
        const { attempt } = outcome;
        this.#running.delete(attempt);
        if ("error" in outcome) {
          await this.#repeatAfter(attempt, outcome.error);
        } else {
          const problem = this.options.problemOf?.(outcome.response);
          if (problem === undefined) return this.#answered(attempt, outcome.response);
          this.#invalid ??= outcome;
          await this.#repeatOnOther(attempt, problem);
        }
        if (this.#isOver && this.#invalid !== undefined) return this.#invalid.response;
      }
    } finally {
      hedge.stop();
      for (const { abandon } of this.#running) abandon();
      this.#deadline.release();
    }
  }

  /** @param hedge - Resolves when the call is due to be hedged; absent if it is not. */
  #nextOutcome(hedge: Promise<undefined> | undefined): Promise<Outcome<T> | undefined> {
    const outcomes = [...this.#running].map(({ outcome }) => outcome);
    if (hedge === undefined && outcomes.length === 1) return outcomes[0]!;
    return Promise.race(hedge === undefined ? outcomes : [...outcomes, hedge]);
  }

  async #next(): Promise<PooledTriton> {
    const triton = await this.upstreams.next(this.#deadline.signal, this.#tried);
    this.#throwIfEnded();
    if (triton === undefined) throw new TritonError("unavailable", `${this.subject}: closed`);
    return triton;
  }

  #start(triton: PooledTriton): void {
    const timeoutMs = Math.max(1, Math.ceil(this.#due - performance.now()));
    const startedAt = performance.now();
    const { result, abandon } = triton.start(this.call, {
      timeoutMs,
      signal: this.#deadline.signal,
    });
    const attempt: RunningAttempt<T> = {
      triton,
      startedAt,
      outcome: result.then(
        (response) => ({ attempt, response }),
        (error: unknown) => ({ attempt, error }),
      ),
      abandon,
    };
    this.#running.add(attempt);
  }

  #startOther(): boolean {
    const running = [...this.#running].map(({ triton }) => triton);
    const triton = this.upstreams.other(new Set([...this.#faulty, ...running]), this.#tried);
    if (triton !== undefined) this.#start(triton);
    return triton !== undefined;
  }

  /** Starts an attempt on another server as soon as one is in rotation, unless an attempt is running. */
  async #startOtherSoon(): Promise<boolean> {
    if (this.#running.size > 0) return false;
    const options = { timeoutMs: this.options.timeoutMs, signal: this.#deadline.signal };
    const triton = await this.upstreams.otherSoon(this.#faulty, this.#tried, options);
    if (triton !== undefined) this.#start(triton);
    return triton !== undefined;
  }

  #answered(attempt: Attempt, response: T): T {
    this.upstreams.onAttemptEnd(attempt.triton, true);
    this.upstreams.onAnswer(attempt);
    for (const { attempt: failed, reason } of this.#failed) {
      if (failed.triton !== attempt.triton) this.upstreams.onOvertaken(failed, reason, false);
    }
    for (const { triton, startedAt } of this.#running) {
      if (startedAt >= attempt.startedAt) continue;
      const reason = `no response in ${Math.round(performance.now() - startedAt)} ms`;
      this.upstreams.onAttemptEnd(triton, false);
      this.upstreams.onOvertaken({ triton, startedAt }, reason, true);
    }
    return response;
  }

  /** Repeats the call once on another server. */
  async #repeatOnOther(attempt: Attempt, reason: string): Promise<void> {
    const { triton } = attempt;
    this.upstreams.onAttemptEnd(triton, false);
    this.#tried.add(triton);
    this.#faulty.add(triton);
    this.#failed.push({ attempt, reason });
    triton.outlier.doubtful = true;
    if (this.#mayRepeat && (this.#startOther() || (await this.#startOtherSoon()))) {
      this.#mayRepeat = false;
    } else {
      this.#isOver = this.#running.size === 0;
    }
  }

  /** @throws {TritonError} if the call is not repeated */
  async #repeatAfter(attempt: Attempt, error: unknown): Promise<void> {
    const { triton } = attempt;
    const failure = callFailureOf(error);
    if (failure === "server" && this.#deadline.ended === undefined) {
      await this.#repeatOnOther(attempt, messageOf(error));
      if (this.#isOver && this.#invalid === undefined) throw error;
      return;
    }
    if (this.#deadline.ended !== "cancelled") this.upstreams.onAttemptEnd(triton, false);
    this.#throwIfEnded();
    if (error instanceof TritonError && error.code === "timeout") throw this.#ended("timeout");
    if (failure === "request") throw error;
    this.#tried.add(triton);
    if (failure === "unavailable") this.#failed.push({ attempt, reason: messageOf(error) });
    triton.suspect();
    if (this.#running.size > 0) {
      this.#startOther();
      return;
    }
    await sleep(this.#backoffMs, undefined, this.#deadline).catch(() => {});
    this.#backoffMs = Math.min(2 * this.#backoffMs, maxBackoffMs);
  }

  #throwIfEnded(): void {
    if (this.#deadline.ended !== undefined) throw this.#ended(this.#deadline.ended);
  }

  #ended(reason: "timeout" | "cancelled"): TritonError {
    return endedError(reason, this.subject, this.upstreams.target, this.options.timeoutMs);
  }
}

/** Timer that elapses once after each restart; never if `ms` is infinite. */
function repeatedTimer(ms: number) {
  let timer: NodeJS.Timeout | undefined;
  const repeated = {
    elapsed: undefined as Promise<undefined> | undefined,
    restart() {
      if (ms === Number.POSITIVE_INFINITY) return;
      repeated.elapsed = new Promise((resolve) => {
        timer = setTimeout(resolve, ms, undefined);
      });
    },
    stop: () => clearTimeout(timer),
  };
  repeated.restart();
  return repeated;
}
