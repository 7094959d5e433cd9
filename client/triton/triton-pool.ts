import dns from "node:dns";
import { EventEmitter, once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { endedError, startDeadline } from "./deadline.ts";
import { checkTarget, type GrpcSecurity, hostOf } from "./grpc-transport.ts";
import { PooledTriton, type TritonCall, type TritonHealthCheck } from "./pooled-triton.ts";
import { type CallOptions, TritonError } from "./transport.ts";

export interface TritonPoolOptions extends GrpcSecurity {
  /** `host:port`; a name that resolves to several addresses stands for several Tritons. */
  readonly targets: readonly string[];
  /** Health check, repeated for every Triton. */
  readonly check: TritonHealthCheck;
  readonly observer?: TritonPoolObserver;
}

/** Receives the events of each target; all addresses of a target count together. */
export interface TritonPoolObserver {
  /** An attempt has ended on this target; an attempt that the caller cancelled is not reported. */
  ended(target: string, ok: boolean): void;
  /** @param healthy - Number of its addresses that are in use. */
  health(target: string, healthy: number, reason: string): void;
}

/** Interval at which names are resolved again. */
const resolveIntervalMs = 5_000;
/** Interval for a name without a healthy Triton. */
const lostResolveIntervalMs = 1_000;

const firstBackoffMs = 20;
const maxBackoffMs = 500;

/**
 * Tritons that serve the same model. A call goes to the healthy Triton with the fewest outstanding calls. It is repeated,
 * until its deadline, if that Triton becomes unavailable or stops responding; while none is healthy it is held.
 */
export class TritonPool {
  /** All targets, for messages. */
  readonly target: string;
  readonly #options: TritonPoolOptions;
  #tritons: readonly PooledTriton[] = [];
  /** Targets whose last lookup failed. */
  readonly #unresolved = new Set<string>();
  readonly #lookups = new Set<string>();
  readonly #events = new EventEmitter().setMaxListeners(0);
  readonly #resolving: NodeJS.Timeout;
  #picks = 0;
  #closed = false;

  constructor(options: TritonPoolOptions) {
    for (const target of options.targets) checkTarget(target);
    this.#options = options;
    this.target = options.targets.join(", ");
    for (const target of options.targets) void this.#resolve(target);
    let elapsedMs = 0;
    this.#resolving = setInterval(() => {
      elapsedMs += lostResolveIntervalMs;
      for (const target of options.targets) {
        const isDue = elapsedMs % resolveIntervalMs === 0;
        if (isDue || this.#healthyOf(target) === 0) void this.#resolve(target);
      }
    }, lostResolveIntervalMs).unref();
  }

  get healthy(): number {
    return this.#tritons.filter(({ usable }) => usable).length;
  }

  /** Reason of each Triton that is not healthy, in one line; empty if all are. */
  get unhealthyReasons(): string {
    const reasons = this.#options.targets.flatMap((target) => {
      const unusable = this.#tritons.filter((triton) => triton.target === target && !triton.usable);
      const lookup = this.#unresolved.has(target) ? ["the name cannot be resolved"] : [];
      return [...lookup, ...unusable.map(({ reason }) => reason)].map(
        (reason) => `${target}: ${reason}`,
      );
    });
    return reasons.join("; ");
  }

  /**
   * @param subject - Name of the model or the call, for messages.
   * @param options - Deadline of all attempts together, the time without a healthy Triton included.
   * @throws {TritonError}
   */
  async run<T>(subject: string, call: TritonCall<T>, options: CallOptions): Promise<T> {
    const deadline = startDeadline(options);
    const due = performance.now() + options.timeoutMs;
    try {
      for (let backoffMs = firstBackoffMs; ; backoffMs = Math.min(2 * backoffMs, maxBackoffMs)) {
        const triton = await this.#healthyTriton(deadline.signal);
        if (deadline.ended !== undefined) {
          throw endedError(deadline.ended, subject, this.target, options.timeoutMs);
        }
        if (triton === undefined) throw new TritonError("unavailable", `${subject}: closed`);
        const timeoutMs = Math.max(1, Math.ceil(due - performance.now()));
        try {
          const result = await triton.run(call, { timeoutMs, signal: deadline.signal });
          this.#options.observer?.ended(triton.target, true);
          return result;
        } catch (error) {
          if (deadline.ended !== "cancelled") this.#options.observer?.ended(triton.target, false);
          const ended = deadline.ended ?? (codeOf(error) === "timeout" ? "timeout" : undefined);
          if (ended !== undefined) {
            throw endedError(ended, subject, this.target, options.timeoutMs);
          }
          if (!isRetryable(error)) throw error;
          triton.suspect();
        }
        await sleep(backoffMs, undefined, deadline).catch(() => {});
      }
    } finally {
      deadline.release();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#resolving);
    for (const triton of this.#tritons) triton.stop();
    this.#tritons = [];
    this.#events.emit("change");
  }

  /** Resolves without one when the pool is closed or the signal is aborted. */
  async #healthyTriton(signal: AbortSignal): Promise<PooledTriton | undefined> {
    while (!this.#closed && !signal.aborted) {
      const picked = this.#pick();
      if (picked !== undefined) return picked;
      await once(this.#events, "change", { signal }).catch(() => {});
    }
    return undefined;
  }

  /** Fewest outstanding calls first, then the longest unused; one on which a call has just failed comes last. */
  #pick(): PooledTriton | undefined {
    const [best] = this.#tritons
      .filter(({ usable }) => usable)
      .sort(
        (a, b) =>
          Number(a.suspected) - Number(b.suspected) ||
          a.outstanding - b.outstanding ||
          a.pickedAt - b.pickedAt,
      );
    this.#picks += 1;
    if (best !== undefined) best.pickedAt = this.#picks;
    return best;
  }

  #healthyOf(target: string): number {
    return this.#tritons.filter((triton) => triton.target === target && triton.usable).length;
  }

  async #resolve(target: string): Promise<void> {
    if (this.#lookups.has(target)) return;
    this.#lookups.add(target);
    try {
      const port = target.slice(target.lastIndexOf(":"));
      const found = await dns.promises.lookup(hostOf(target), { all: true });
      this.#unresolved.delete(target);
      const hosts = found.map(({ address, family }) => (family === 6 ? `[${address}]` : address));
      this.#setAddresses(
        target,
        hosts.map((host) => host + port),
      );
    } catch {
      // known addresses are kept while the name server is unavailable
      this.#unresolved.add(target);
    } finally {
      this.#lookups.delete(target);
    }
  }

  #setAddresses(target: string, addresses: readonly string[]): void {
    if (this.#closed) return;
    const current = this.#tritons.filter((triton) => triton.target === target);
    const removed = current.filter(({ address }) => !addresses.includes(address));
    const known = new Set(current.map(({ address }) => address));
    const { check, tls, metadata } = this.#options;
    const added = [...new Set(addresses)]
      .filter((address) => !known.has(address))
      .map(
        (address) =>
          new PooledTriton({ target, address, tls, metadata }, check, (reason) =>
            this.#changed(target, reason),
          ),
      );
    this.#tritons = [...this.#tritons.filter((triton) => !removed.includes(triton)), ...added];
    for (const triton of removed) {
      triton.stop();
      this.#changed(target, `${triton.address} is no longer one of its addresses`);
    }
  }

  #changed(target: string, reason: string): void {
    if (this.#closed) return;
    this.#options.observer?.health(target, this.#healthyOf(target), reason);
    if (this.healthy > 0) for (const triton of this.#tritons) triton.moveCalls();
    this.#events.emit("change");
  }
}

function codeOf(error: unknown): TritonError["code"] | undefined {
  return error instanceof TritonError ? error.code : undefined;
}

/** A Triton that stops unloads its models first, and then responds NOT_FOUND (observed with 2.51) until its check fails. */
function isRetryable(error: unknown): boolean {
  if (codeOf(error) === "unavailable") return true;
  const { cause } = error as { readonly cause?: { readonly code?: status } };
  return codeOf(error) === "rejected" && cause?.code === status.NOT_FOUND;
}
