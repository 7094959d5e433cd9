import { GrpcTransport, type GrpcTransportOptions } from "./grpc-transport.ts";
import { type CallOptions, TritonError } from "./transport.ts";

/** Idempotent call that any Triton of a pool can execute; it is repeated on another one if this one fails. */
export type TritonCall<T> = (triton: GrpcTransport, options: CallOptions) => Promise<T>;

/**
 * Health check of one Triton; rejects, with the reason, if it must not be used.
 *
 * @param triton - Client of this Triton only; the same object in every check.
 */
export type TritonHealthCheck = TritonCall<void>;

const checkIntervalMs = 500;
/** A Triton whose health check takes longer is taken out of rotation: at most 1.5 s after it died. */
const unresponsiveAfterMs = 1_000;
const checkTimeoutMs = 5_000;

const channelOptions = {
  // the pool repeats calls
  "grpc.enable_retries": 0,
  // Detects a lost network during a call. A gRPC server closes a connection with many pings and no other traffic, which the
  // health checks are.
  "grpc.keepalive_time_ms": 10_000,
  "grpc.keepalive_timeout_ms": 5_000,
} as const;

/** One Triton of a pool: the client of its address, its outstanding calls and its health-check loop. */
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
    this.#client = new GrpcTransport({ ...options, channelOptions });
    this.#check = check;
    this.#onChange = onChange;
    void this.#watch();
  }

  get outstanding(): number {
    return this.#calls.size;
  }

  /** @throws {TritonError} `unavailable` if the call was ended by {@link moveCalls} */
  async run<T>(call: TritonCall<T>, { timeoutMs, signal }: CallOptions): Promise<T> {
    const controller = new AbortController();
    const cancel = () => controller.abort();
    signal?.addEventListener("abort", cancel, { once: true });
    this.#calls.add(controller);
    try {
      return await call(this.#client, { timeoutMs, signal: controller.signal });
    } catch (error) {
      if (!controller.signal.aborted || signal?.aborted) throw error;
      throw new TritonError("unavailable", `${this.target} does not respond`);
    } finally {
      this.#calls.delete(controller);
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Prefers other Tritons until the next health check, which is due at once. */
  suspect(): void {
    this.suspected = true;
    this.#checkNow();
  }

  /** Ends the calls of a Triton that does not respond, so that they are repeated on another one. */
  moveCalls(): void {
    if (this.#silent) for (const call of this.#calls) call.abort();
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

/** One line. For a failed connection, its cause without the words and the time that grpc-js adds. */
function reasonOf(error: unknown): string {
  const text = error instanceof TritonError ? error.problem : (error as Error).message;
  const [, cause] =
    /Last error: (?:Error: )?(.*?)(?: \(\d{4}-[^)]*\))?\. Resolution/s.exec(text) ?? [];
  return (cause ?? text).replaceAll(/\s+/g, " ");
}
