import dns from "node:dns";
import { EventEmitter, once } from "node:events";
import { abortedAfter } from "../triton/deadline.ts";
import { checkTarget, type GrpcSecurity } from "../triton/grpc-transport.ts";
import type { CallOptions } from "../triton/transport.ts";
import { hostOf } from "../triton/unary-channel.ts";
import { type Attempt, type CallUpstreams, PoolCall, type PoolCallOptions } from "./pool-call.ts";
import { PooledTriton, type TritonCall, type TritonHealthCheck } from "./pooled-triton.ts";

export interface TritonPoolOptions extends GrpcSecurity {
  /** `host:port`; a name that resolves to several addresses stands for several Triton servers. */
  readonly targets: readonly string[];
  /** Health check, repeated for every server. */
  readonly check: TritonHealthCheck;
  readonly observer?: TritonPoolObserver;
}

/** Receives the events of each target. All addresses to which its name resolves count as one target. */
export interface TritonPoolObserver {
  /**
   * Called when an attempt of a call on this target ends; not called if the caller cancelled it.
   * A call has several attempts if it is retried or hedged.
   */
  onAttemptEnd(target: string, succeeded: boolean): void;
  /**
   * Called when an address of the target becomes healthy or unhealthy.
   *
   * @param healthyAddresses - Number of its addresses that are in rotation.
   * @param reason - One line; empty if an address is in rotation again.
   */
  onHealthChange(target: string, healthyAddresses: number, reason: string): void;
  /** Called when an address of this target is taken out of rotation because its calls failed. */
  onEjection?(target: string): void;
}

/** Interval at which names are resolved again. */
const resolveIntervalMs = 5_000;
/** Interval for a name without a healthy Triton server. */
const lostResolveIntervalMs = 1_000;

/** Share of its deadline after which a call without a response is also sent to another server. */
const hedgeShare = 0.1;
/** Minimum of the same time as a multiple of the mean response time, so that slow models are not executed twice. */
const hedgeMeans = 4;
/** Weight of a response in the moving average of the response time. */
const meanWeight = 0.1;

/**
 * Triton servers with the same model. A call goes to the healthy server with the fewest outstanding calls. It is repeated, until its
 * deadline, if that server becomes unavailable or stops responding, and once if it failed for a reason of the server; while no server
 * is healthy it is held. A server whose calls fail while others answer them is taken out of rotation.
 */
export class TritonPool implements CallUpstreams {
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
  #meanMs = 0;
  /** Time at which the last healthy server was lost; `undefined` while there is one. */
  #lostAt: number | undefined = Number.NEGATIVE_INFINITY;
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
    return this.#inRotation.length;
  }

  /** Time without a healthy server, in milliseconds; infinite if there has never been one. */
  get lostMs(): number {
    return this.#lostAt === undefined ? 0 : performance.now() - this.#lostAt;
  }

  /** Reason of each server that is not healthy, in one line; empty if all are. */
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
   * @param options - Deadline of all attempts together, the time without a healthy server included.
   * @returns The response of a server. It is invalid if no second server could answer validly.
   * @throws {TritonError}
   */
  run<T>(subject: string, call: TritonCall<T>, options: PoolCallOptions<T>): Promise<T> {
    return new PoolCall(this, subject, call, options).run();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#resolving);
    for (const triton of this.#tritons) triton.stop();
    this.#tritons = [];
    this.#events.emit("change");
  }

  hedgeMs(timeoutMs: number): number {
    if (this.#tritons.length < 2) return Number.POSITIVE_INFINITY;
    return Math.max(hedgeShare * timeoutMs, hedgeMeans * this.#meanMs);
  }

  next(signal: AbortSignal, avoid: ReadonlySet<PooledTriton>): Promise<PooledTriton | undefined> {
    return this.#pickWithin(signal, () => {
      const picked = this.#pick(this.#candidates, avoid);
      picked?.outlier.attempt();
      return picked;
    });
  }

  other(
    excluded: ReadonlySet<PooledTriton>,
    avoid: ReadonlySet<PooledTriton>,
  ): PooledTriton | undefined {
    const others = this.#inRotation.filter((triton) => !excluded.has(triton));
    return this.#pick(others, avoid);
  }

  async otherSoon(
    excluded: ReadonlySet<PooledTriton>,
    avoid: ReadonlySet<PooledTriton>,
    { timeoutMs, signal }: Required<CallOptions>,
  ): Promise<PooledTriton | undefined> {
    if (this.#tritons.every((triton) => excluded.has(triton))) return undefined;
    const waiting = AbortSignal.any([
      signal,
      abortedAfter(Math.min(this.hedgeMs(timeoutMs), timeoutMs)),
    ]);
    return this.#pickWithin(waiting, () => this.other(excluded, avoid));
  }

  onAttemptEnd(triton: PooledTriton, succeeded: boolean): void {
    this.#options.observer?.onAttemptEnd(triton.target, succeeded);
  }

  onAnswer({ triton, startedAt }: Attempt): void {
    const elapsedMs = performance.now() - startedAt;
    this.#meanMs += (this.#meanMs === 0 ? 1 : meanWeight) * (elapsedMs - this.#meanMs);
    if (triton.outlier.succeeded(startedAt)) this.#changed(triton.target, "");
  }

  onOvertaken({ triton, startedAt }: Attempt, reason: string, isHang: boolean): void {
    const isLast = this.#inRotation.every((other) => other === triton);
    if (isLast) return;
    const ejectionMs = triton.outlier.failed(startedAt, isHang);
    if (ejectionMs === undefined) return;
    this.#options.observer?.onEjection?.(triton.target);
    this.#changed(
      triton.target,
      `${triton.address} failed while others answered, next attempt in ${ejectionMs / 1000} s: ${reason.replaceAll(/[\s\p{Cc}]+/gu, " ").slice(0, 200)}`,
    );
    if (isHang) triton.abandonCalls();
  }

  /** Returns the healthy servers that are not ejected, or all healthy servers if every one of them is ejected. */
  get #inRotation(): readonly PooledTriton[] {
    const usable = this.#tritons.filter((triton) => triton.usable);
    const admitted = usable.filter(({ outlier }) => !outlier.ejected);
    return admitted.length > 0 ? admitted : usable;
  }

  /** Ejected servers whose next attempt is due, or the servers in rotation. */
  get #candidates(): readonly PooledTriton[] {
    const due = this.#tritons.filter(({ usable, outlier }) => usable && outlier.isDue);
    return due.length > 0 ? due : this.#inRotation;
  }

  /** Picks again after each change until there is a server, the pool is closed or the signal is aborted. */
  async #pickWithin(
    signal: AbortSignal,
    pick: () => PooledTriton | undefined,
  ): Promise<PooledTriton | undefined> {
    while (!this.#closed && !signal.aborted) {
      const picked = pick();
      if (picked !== undefined) return picked;
      await once(this.#events, "change", { signal }).catch(() => {});
    }
    return undefined;
  }

  /**
   * Fewest outstanding calls first, then the longest unused; one on which a call has just failed comes last.
   *
   * @param avoid - Servers that have failed this call.
   */
  #pick(
    candidates: readonly PooledTriton[],
    avoid: ReadonlySet<PooledTriton>,
  ): PooledTriton | undefined {
    const isRepeated = avoid.size > 0;
    const [best] = [...candidates].sort(
      (a, b) =>
        Number(avoid.has(a)) - Number(avoid.has(b)) ||
        Number(a.suspected) - Number(b.suspected) ||
        (isRepeated ? Number(a.outlier.doubtful) - Number(b.outlier.doubtful) : 0) ||
        a.outstanding - b.outstanding ||
        a.pickedAt - b.pickedAt,
    );
    this.#picks += 1;
    if (best !== undefined) best.pickedAt = this.#picks;
    return best;
  }

  #healthyOf(target: string): number {
    return this.#inRotation.filter((triton) => triton.target === target).length;
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
    this.#options.observer?.onHealthChange(target, this.#healthyOf(target), reason);
    if (this.healthy > 0) {
      this.#lostAt = undefined;
      for (const triton of this.#tritons) triton.moveCalls();
    } else {
      this.#lostAt ??= performance.now();
    }
    this.#events.emit("change");
  }
}
