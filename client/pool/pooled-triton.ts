import { GrpcTransport, type GrpcTransportOptions } from "../triton/grpc-transport.ts";
import { type CallOptions, TritonError } from "../triton/transport.ts";
import { CallError } from "../triton/unary-channel.ts";
import { OutlierRecord } from "./outlier.ts";

/** Idempotent call that any server of a pool can execute; it is repeated on another one if this one fails. */
export type TritonCall<T> = (triton: GrpcTransport, options: CallOptions) => Promise<T>;

/**
 * Health check of one server; rejects, with the reason, if it must not be used.
 *
 * @param triton - Client of this Triton server only; the same object in every check.
 */
export type TritonHealthCheck = TritonCall<void>;

const checkIntervalMs = 500;
/** Maximum duration of a health check in ms. A slower server receives no more calls, at the latest 1.5 s after it died. */
const unresponsiveAfterMs = 1_000;
const checkTimeoutMs = 5_000;

/** One Triton server of a pool: the client of its address, its outstanding calls and its health-check loop. */
export class PooledTriton {
  readonly target: string;
  readonly address: string;
  /** Whether it has passed its last health check. */
  usable = false;
  reason = "not connected yet";
  /** Whether a call has failed since the last passed health check. */
  suspected = false;
  /** Order of use in the pool; 0 if unused. */
  pickedAt = 0;

  readonly outlier = new OutlierRecord();
  readonly #client: GrpcTransport;
  readonly #check: TritonHealthCheck;
  readonly #onChange: (reason: string) => void;
  readonly #calls = new Set<AbortController>();
  readonly #stopped = new AbortController();
  /** Whether the last health check has no response. */
  #silent = false;
  /** Ends the pause before the next health check. */
  #checkNow: () => void = () => {};

  constructor(
    options: GrpcTransportOptions & { readonly address: string },
    check: TritonHealthCheck,
    onChange: (reason: string) => void,
  ) {
    this.target = options.target;
    this.address = options.address;
    this.#client = new GrpcTransport(options);
    this.#check = check;
    this.#onChange = onChange;
    void this.#watch();
  }

  get outstanding(): number {
    return this.#calls.size;
  }

  /**
   * Starts a call, which fails with `unavailable` if it is ended by {@link moveCalls} or {@link abandonCalls}.
   *
   * @returns Its result, and a function that ends it.
   */
  start<T>(
    call: TritonCall<T>,
    { timeoutMs, signal }: Required<CallOptions>,
  ): { readonly result: Promise<T>; abandon(): void } {
    const controller = new AbortController();
    const abandon = () => controller.abort();
    signal.addEventListener("abort", abandon, { once: true });
    this.#calls.add(controller);
    const run = async () => {
      try {
        return await call(this.#client, { timeoutMs, signal: controller.signal });
      } catch (error) {
        if (!controller.signal.aborted || signal.aborted) throw error;
        throw new TritonError("unavailable", `${this.target} does not respond`);
      } finally {
        this.#calls.delete(controller);
        signal.removeEventListener("abort", abandon);
      }
    };
    return { result: run(), abandon };
  }

  /** Prefers other servers until the next health check, which is due at once. */
  suspect(): void {
    this.suspected = true;
    this.#checkNow();
  }

  /** Ends the calls of a server that does not respond, so that they are repeated on another one. */
  moveCalls(): void {
    if (this.#silent) this.abandonCalls();
  }

  abandonCalls(): void {
    for (const call of this.#calls) call.abort();
  }

  /** Ends the health checks. Outstanding calls continue. */
  stop(): void {
    this.usable = false;
    this.#stopped.abort();
    this.#checkNow();
    void this.#client.close();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      const timer = startTimer(() => this.#setSilent(unresponsiveAfterMs));
      try {
        await this.#check(this.#client, { timeoutMs: checkTimeoutMs, signal });
        this.suspected = false;
        this.#silent = false;
        this.#set(true, "");
      } catch (error) {
        if (error instanceof TritonError && error.code === "timeout") {
          if (!this.#silent) this.#setSilent(checkTimeoutMs);
        } else {
          this.#silent = false;
          this.#set(false, reasonOf(error));
        }
      } finally {
        timer.stop();
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, checkIntervalMs);
        this.#checkNow = () => {
          clearTimeout(timer);
          resolve();
        };
        if (signal.aborted) this.#checkNow();
      });
    }
  }

  #setSilent(afterMs: number): void {
    this.#silent = true;
    this.#set(false, `no response in ${afterMs} ms`);
  }

  #set(usable: boolean, reason: string): void {
    if (this.#stopped.signal.aborted || (usable === this.usable && reason === this.reason)) return;
    // it may have been restarted
    if (usable && !this.usable) this.outlier.reset();
    this.usable = usable;
    this.reason = reason;
    this.#onChange(reason);
  }
}

/** Calls `end` after {@link unresponsiveAfterMs}, not counting times in which this process was too busy to read the response. */
function startTimer(end: () => void): { stop(): void } {
  const stepMs = unresponsiveAfterMs / 10;
  let [remainingMs, before] = [unresponsiveAfterMs, performance.now()];
  const step = () => {
    const elapsedMs = performance.now() - before;
    before += elapsedMs;
    if (elapsedMs < 2 * stepMs) remainingMs -= stepMs;
    if (remainingMs <= 0) end();
    else next = setTimeout(step, stepMs);
  };
  let next = setTimeout(step, stepMs);
  return { stop: () => clearTimeout(next) };
}

/** One line; for a failed connection, its cause. */
function reasonOf(error: unknown): string {
  const { cause } = error as Error;
  const text =
    cause instanceof CallError && cause.source === "connection"
      ? cause.details.replace("connection closed: ", "")
      : error instanceof TritonError
        ? error.problem
        : (error as Error).message;
  return text.replaceAll(/\s+/g, " ");
}
