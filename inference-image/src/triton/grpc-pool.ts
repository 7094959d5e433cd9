import {
  type ChannelOptions,
  Client,
  connectivityState,
  credentials,
  experimental,
  status,
} from "@grpc/grpc-js";
import { channelOptionsOf, checkTarget, GrpcTransport } from "./grpc-transport.ts";
import { type CallOptions, type Transport, TritonError } from "./transport.ts";

/**
 * Several Tritons as one {@link Transport}.
 *
 * grpc-js balances the calls (its `round_robin` over all addresses of all targets), connects and reconnects, and sends a
 * call that a Triton could not take to another one (its retry policy). It has hooks for health checks but no health
 * check: that is what this file adds, as a name resolver and a load balancing policy around `round_robin`.
 *
 * - Each connection is asked again and again whether its Triton can be used. One that says no, or says nothing, is left
 *   out. HTTP/2 pings cannot be used for this: a gRPC server closes connections that ping more often than every five
 *   minutes.
 * - The calls of a Triton that says nothing end with UNAVAILABLE as soon as another one can take them.
 */
export interface GrpcPool extends Transport {
  /** How many Tritons can be used now. */
  readonly healthy: number;
  /** Why the others cannot, one by one, in one line; empty when all can. */
  readonly trouble: string;
}

export interface GrpcPoolOptions {
  /** `host:port`; a name that has several addresses is several Tritons. */
  readonly targets: readonly string[];
  /**
   * Asked of every connection. Rejects, with the reason, where this Triton must not be used.
   *
   * @param transport - To this Triton only; another one after each time that it was connected anew.
   */
  check(transport: Transport, options: CallOptions): Promise<void>;
  readonly observer?: GrpcPoolObserver;
}

/** Told what happens to each target; one that has several addresses counts as one. */
export interface GrpcPoolObserver {
  /** An inference, retries included, has ended on this target. */
  ended(target: string, ok: boolean): void;
  /** @param healthy - How many of its addresses can be used. */
  health(target: string, healthy: number, reason: string): void;
}

export function openGrpcPool(options: GrpcPoolOptions): GrpcPool {
  for (const target of options.targets) checkTarget(target);
  lastPool += 1;
  const id = String(lastPool);
  const shared = new Shared(options);
  pools.set(id, shared);
  return new Pool(id, shared);
}

/** Time from one answer to the next question. */
const checkIntervalMs = 500;
/** A Triton that takes longer to answer is left out: at most 1.5 s after it died. */
const checkPatienceMs = 1_000;
/** A question that has no answer by then is asked anew. */
const checkTimeoutMs = 5_000;
/** grpc-js lets go of the connections of a channel that had no call for 30 minutes, unless it is asked to connect. */
const connectIntervalMs = 60_000;
/** Names are looked up again, so that a Triton at a new address is found. */
const resolveIntervalMs = 5_000;

const scheme = "clipstack-pool";
const policy = "clipstack_checked_round_robin";

/**
 * What a Triton says while it goes down. It first unloads its models, and refuses calls as if it had never had them
 * (seen with 2.51), until a health check leaves it out.
 */
const goingDown: readonly status[] = [status.UNAVAILABLE, status.NOT_FOUND];

const retryPolicy = {
  maxAttempts: 20,
  initialBackoff: "0.02s",
  maxBackoff: "0.5s",
  backoffMultiplier: 2,
  retryableStatusCodes: goingDown,
};

/** Pools by the path of their target: resolvers and policies are made by grpc-js, which only hands names on. */
const pools = new Map<string, Shared>();
let lastPool = 0;

type RealSubchannel = ReturnType<experimental.SubchannelInterface["getRealSubchannel"]>;
type SubchannelCall = ReturnType<RealSubchannel["createCall"]>;

/** What the resolver, the policy and the connections of one pool share. */
class Shared {
  /** The target that each address comes from. */
  readonly targetOfAddress = new Map<string, string>();
  /** Targets whose name cannot be looked up, and why. */
  readonly unresolved = new Map<string, string>();
  readonly connections = new Map<RealSubchannel, CheckedSubchannel>();

  closed = false;

  constructor(readonly options: GrpcPoolOptions) {}

  get usable(): readonly CheckedSubchannel[] {
    return [...this.connections.values()].filter((connection) => connection.usable);
  }

  changed(target: string, reason: string): void {
    if (this.closed) return;
    const { usable } = this;
    const count = usable.filter((connection) => connection.target === target).length;
    this.options.observer?.health(target, count, reason);
    if (usable.length === 0) return;
    for (const connection of this.connections.values()) connection.moveCalls();
  }
}

class Pool extends GrpcTransport implements GrpcPool {
  readonly #id: string;
  readonly #shared: Shared;
  readonly #connecting: NodeJS.Timeout;

  constructor(id: string, shared: Shared) {
    const client = new Client(`${scheme}:${id}`, credentials.createInsecure(), {
      ...channelOptionsOf(),
      "grpc.service_config": JSON.stringify({
        loadBalancingConfig: [{ [policy]: { pool: id } }],
        methodConfig: [{ name: [{ service: "inference.GRPCInferenceService" }], retryPolicy }],
      }),
      "grpc.service_config_disable_resolution": 1,
      "grpc-node.retry_max_attempts_limit": retryPolicy.maxAttempts,
      // beyond these a call is not repeated; the caller bounds what waits
      "grpc.per_rpc_retry_buffer_size": Number.MAX_SAFE_INTEGER,
      "grpc.retry_buffer_size": Number.MAX_SAFE_INTEGER,
      "grpc.dns_min_time_between_resolutions_ms": 1_000,
      // a connection that leads nowhere, because the network went away, is made anew
      "grpc.keepalive_time_ms": 10_000,
      "grpc.keepalive_timeout_ms": 5_000,
    });
    super(shared.options.targets.join(", "), [client], { waitForReady: true });
    this.#id = id;
    this.#shared = shared;
    // connect now, not with the first call, and stay so: health checks are no calls of this channel
    const connect = () => client.getChannel().getConnectivityState(true);
    connect();
    this.#connecting = setInterval(connect, connectIntervalMs).unref();
  }

  get healthy(): number {
    return this.#shared.usable.length;
  }

  get trouble(): string {
    const { options, unresolved, connections } = this.#shared;
    const reasons = options.targets.flatMap((target) => {
      const unusable = [...connections.values()].filter(
        (connection) => connection.target === target && !connection.usable,
      );
      return [unresolved.get(target) ?? [], ...unusable.map(({ reason }) => reason)]
        .flat()
        .map((reason) => `${target}: ${reason}`);
    });
    return reasons.join("; ");
  }

  override async close(): Promise<void> {
    this.#shared.closed = true;
    clearInterval(this.#connecting);
    await super.close();
    for (const connection of this.#shared.connections.values()) connection.stop();
    pools.delete(this.#id);
  }
}

/** All addresses of all targets. grpc-js' own resolver looks each of them up. */
class PoolResolver implements experimental.Resolver {
  readonly #pool: Shared;
  readonly #listener: experimental.ResolverListener;
  readonly #resolvers: readonly experimental.Resolver[];
  readonly #endpoints = new Map<string, readonly experimental.Endpoint[]>();
  #timer: NodeJS.Timeout | undefined;
  #told = "";

  constructor(
    { path }: experimental.GrpcUri,
    listener: experimental.ResolverListener,
    options: ChannelOptions,
  ) {
    this.#pool = pools.get(path)!;
    this.#listener = listener;
    this.#resolvers = this.#pool.options.targets.map((target) =>
      experimental.createResolver(
        { scheme: "dns", path: target },
        (result) => this.#resolved(target, result),
        options,
      ),
    );
  }

  static getDefaultAuthority({ path }: experimental.GrpcUri): string {
    return pools.get(path)?.options.targets[0] ?? path;
  }

  updateResolution(): void {
    for (const resolver of this.#resolvers) resolver.updateResolution();
    this.#timer ??= setInterval(() => this.updateResolution(), resolveIntervalMs).unref();
  }

  destroy(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    for (const resolver of this.#resolvers) resolver.destroy();
    this.#endpoints.clear();
    this.#told = "";
  }

  #resolved(target: string, result: Parameters<experimental.ResolverListener>[0]): boolean {
    const pool = this.#pool;
    if (result.ok) {
      pool.unresolved.delete(target);
      // a cluster's name server gives the same addresses in another order each time
      this.#endpoints.set(target, result.value.toSorted(byAddress));
      for (const { addresses } of result.value) {
        for (const address of addresses) {
          pool.targetOfAddress.set(experimental.subchannelAddressToString(address), target);
        }
      }
    } else {
      // what was known stays known: a name server that is down is no reason to leave a Triton
      pool.unresolved.set(target, "the name cannot be looked up");
      if (!this.#endpoints.has(target)) this.#endpoints.set(target, []);
    }
    if (this.#endpoints.size < pool.options.targets.length) return true;
    // in the order of the targets; the same list again would make the policy begin anew
    const endpoints = pool.options.targets.flatMap((each) => this.#endpoints.get(each) ?? []);
    const key = endpoints.map(experimental.endpointToString).join(" ");
    if (key === this.#told) return true;
    this.#told = key;
    return this.#listener(experimental.statusOrFromValue([...endpoints]), {}, null, "");
  }
}

function byAddress(a: experimental.Endpoint, b: experimental.Endpoint): number {
  return experimental.endpointToString(a) < experimental.endpointToString(b) ? -1 : 1;
}

class CheckedConfig implements experimental.TypedLoadBalancingConfig {
  constructor(readonly pool: string) {}
  static createFromJson({ pool }: { readonly pool: string }): CheckedConfig {
    return new CheckedConfig(pool);
  }
  getLoadBalancerName(): string {
    return policy;
  }
  toJsonObject(): object {
    return { [policy]: { pool: this.pool } };
  }
}

/** grpc-js' `round_robin` over connections that say whether they are healthy. */
class CheckedBalancer implements experimental.LoadBalancer {
  readonly #roundRobin: experimental.ChildLoadBalancerHandler;
  #pool: Shared | undefined;

  constructor(helper: experimental.ChannelControlHelper) {
    const checked = experimental.createChildChannelControlHelper(helper, {
      createSubchannel: (address, args) => {
        const subchannel = helper.createSubchannel(address, args);
        const pool = this.#pool!;
        const real = subchannel.getRealSubchannel();
        const known = pool.connections.get(real);
        if (known !== undefined) return known;
        const made = new CheckedSubchannel(subchannel, pool);
        pool.connections.set(real, made);
        return made;
      },
      updateState: (state, picker, error) => {
        const ready = state === connectivityState.READY;
        helper.updateState(state, ready ? new CheckedPicker(picker) : picker, error);
      },
    });
    this.#roundRobin = new experimental.ChildLoadBalancerHandler(checked);
  }

  updateAddressList(
    endpoints: Parameters<experimental.LoadBalancer["updateAddressList"]>[0],
    config: experimental.TypedLoadBalancingConfig,
    options: ChannelOptions,
    note: string,
  ): boolean {
    this.#pool = pools.get((config as CheckedConfig).pool);
    if (this.#pool === undefined) return false;
    const roundRobin = experimental.parseLoadBalancingConfig({ round_robin: {} });
    return this.#roundRobin.updateAddressList(endpoints, roundRobin, options, note);
  }
  exitIdle(): void {
    this.#roundRobin.exitIdle();
  }
  resetBackoff(): void {
    this.#roundRobin.resetBackoff();
  }
  destroy(): void {
    this.#roundRobin.destroy();
  }
  getTypeName(): string {
    return policy;
  }
}

/** Tells a connection of the calls that it gets. */
class CheckedPicker implements experimental.Picker {
  readonly #roundRobin: experimental.Picker;

  constructor(roundRobin: experimental.Picker) {
    this.#roundRobin = roundRobin;
  }

  pick(args: experimental.PickArgs): experimental.PickResult {
    const result = this.#roundRobin.pick(args);
    const { subchannel } = result;
    if (!(subchannel instanceof CheckedSubchannel)) return result;
    let call: SubchannelCall | undefined;
    return {
      ...result,
      subchannel: subchannel.noting,
      onCallStarted: () => {
        call = subchannel.started();
        result.onCallStarted?.();
      },
      onCallEnded: (code, details, metadata) => {
        subchannel.ended(call, code);
        result.onCallEnded?.(code, details, metadata);
      },
    };
  }
}

/** One connection to one Triton, and whether that can be used. */
class CheckedSubchannel extends experimental.BaseSubchannelWrapper {
  readonly target: string;
  /** Connected, and the last check was passed. */
  usable = false;
  reason = "not connected yet";
  /** What the picker hands out: the same connection, which keeps the last call that was made on it. */
  readonly noting: experimental.SubchannelInterface;

  readonly #pool: Shared;
  readonly #calls = new Set<SubchannelCall>();
  #lastCall: SubchannelCall | undefined;
  /** The last check has no answer. */
  #silent = false;
  #watch: AbortController | undefined;
  /** Ends the pause before the next check. */
  #checkNow: () => void = () => {};
  #holders = 0;

  constructor(subchannel: experimental.SubchannelInterface, pool: Shared) {
    super(subchannel);
    this.#pool = pool;
    this.target = pool.targetOfAddress.get(subchannel.getAddress()) ?? subchannel.getAddress();
    this.setHealthy(false);
    this.noting = withMember(subchannel, "getRealSubchannel", () => {
      const real = subchannel.getRealSubchannel();
      return withMember(real, "createCall", (...args) => {
        this.#lastCall = real.createCall(...args);
        return this.#lastCall;
      });
    });
    subchannel.addConnectivityStateListener(this.#onState);
    if (subchannel.getConnectivityState() === connectivityState.READY) this.#start();
  }

  override ref(): void {
    this.#holders += 1;
    super.ref();
  }

  override unref(): void {
    this.#holders -= 1;
    super.unref();
    // a new list of addresses lets go of all connections first, and takes most of them again
    setImmediate(() => {
      if (this.#holders > 0) return;
      this.stop();
      this.removeConnectivityStateListener(this.#onState);
      this.#pool.connections.delete(this.getRealSubchannel());
    });
  }

  /** A call was made on {@link noting}, just now. */
  started(): SubchannelCall | undefined {
    const call = this.#lastCall;
    if (call !== undefined) this.#calls.add(call);
    return call;
  }

  ended(call: SubchannelCall | undefined, code: status): void {
    if (call !== undefined) this.#calls.delete(call);
    if (goingDown.includes(code)) this.#checkNow();
    if (code === status.CANCELLED) return;
    this.#pool.options.observer?.ended(this.target, code === status.OK);
  }

  /** End the calls of a Triton that says nothing, so that they are sent to another. */
  moveCalls(): void {
    if (!this.#silent) return;
    for (const call of this.#calls) {
      call.cancelWithStatus(status.UNAVAILABLE, `${this.target} does not answer`);
    }
    this.#calls.clear();
  }

  stop(): void {
    this.#stop("closed");
  }

  #start(): void {
    if (this.#watch !== undefined) return;
    this.#watch = new AbortController();
    const channelOverride = this.getChannel();
    const transport = new GrpcTransport(this.target, [
      new Client(this.target, credentials.createInsecure(), { channelOverride }),
    ]);
    void this.#check(transport, this.#watch.signal);
  }

  #onState: experimental.ConnectivityStateListener = (_this, _before, state, _keepalive, error) => {
    if (state === connectivityState.READY) this.#start();
    // while it connects again it is not known why it could not
    else if (error !== undefined || this.usable) this.#stop(error ?? "the connection was lost");
  };

  #stop(reason: string): void {
    this.#watch?.abort();
    this.#watch = undefined;
    this.#checkNow();
    this.#silent = false;
    this.#set(false, oneLine(reason));
  }

  async #check(transport: Transport, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const patience = startPatience(() => {
        if (signal.aborted) return;
        this.#silent = true;
        this.#set(false, `no answer in ${checkPatienceMs} ms`);
      });
      try {
        await this.#pool.options.check(transport, { timeoutMs: checkTimeoutMs, signal });
        patience.stop();
        this.#silent = false;
        if (!signal.aborted) this.#set(true, "");
      } catch (error) {
        patience.stop();
        if (!signal.aborted && !this.#silent) this.#set(false, messageOf(error));
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

  #set(usable: boolean, reason: string): void {
    const same = usable === this.usable && reason === this.reason;
    this.usable = usable;
    this.reason = reason;
    this.setHealthy(usable);
    if (!same) this.#pool.changed(this.target, reason);
  }
}

/** Calls `end` when time is up, unless this process itself had no time to look at the answer. */
function startPatience(end: () => void): { stop(): void } {
  let due = performance.now() + checkPatienceMs;
  const look = () => {
    const lateMs = performance.now() - due;
    if (lateMs < 100) return end();
    due = performance.now() + 100;
    timer = setTimeout(look, 100);
  };
  let timer = setTimeout(look, checkPatienceMs);
  return { stop: () => clearTimeout(timer) };
}

/** `object` with another `name`: what it is to others stays the same. */
function withMember<T extends object, Name extends keyof T>(
  object: T,
  name: Name,
  member: T[Name],
): T {
  return new Proxy(object, {
    get: (target, key) => (key === name ? member : Reflect.get(target, key, target)),
  });
}

function messageOf(error: unknown): string {
  if (error instanceof TritonError) return oneLine(error.message.replace(`[${error.code}] `, ""));
  return oneLine(error instanceof Error ? error.message : String(error));
}

/** Without the time that grpc-js adds to what a connection failed with. */
function oneLine(text: string): string {
  return text
    .replace(/ \(\d{4}-\d\d-\d\dT[^)]*\)/, "")
    .replace(/^Error: /, "")
    .replaceAll(/\s+/g, " ");
}

experimental.registerResolver(scheme, PoolResolver);
experimental.registerLoadBalancerType(policy, CheckedBalancer, CheckedConfig);
