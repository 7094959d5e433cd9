import dns from "node:dns";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import { expect, onTestFinished, test, vi } from "vitest";
import { inferenceService } from "../triton/wire-grpc.ts";
import { TritonPool } from "./triton-pool.ts";

/** In a cluster, a name resolves to the changing addresses of several Triton servers; here the test sets them. */

const name = "tritons.test";
/** Server on one address of this machine. It counts metadata requests. */
class CountingServer {
  requestCount = 0;
  /** Delays responses until it resolves. */
  gate: Promise<void> = Promise.resolve();
  readonly #server = new Server();

  constructor(readonly address: string) {}

  /** @returns The port; `undefined` if it is in use. */
  async start(port = 0): Promise<number | undefined> {
    type Callback = (error: null, response: object) => void;
    const all = Object.keys(inferenceService).map((method) => [method, () => {}]);
    this.#server.addService(inferenceService, {
      ...Object.fromEntries(all),
      ServerReady: (_call: unknown, callback: Callback) => callback(null, { ready: true }),
      ServerMetadata: async (_call: unknown, callback: Callback) => {
        this.requestCount += 1;
        await this.gate;
        callback(null, { name: "triton", version: "1", extensions: [] });
      },
    });
    onTestFinished(() => this.#server.forceShutdown());
    return await new Promise((resolve) => {
      this.#server.bindAsync(
        `${this.address}:${port}`,
        ServerCredentials.createInsecure(),
        (error, bound) => resolve(error === null ? bound : undefined),
      );
    });
  }

  stop(): void {
    this.#server.forceShutdown();
  }
}

/** Servers on 127.0.0.1, 127.0.0.2, … with the same port, as pods have. */
async function serversOn(count: number): Promise<{ servers: CountingServer[]; port: number }> {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const servers = Array.from(
      { length: count },
      (_, at) => new CountingServer(`127.0.0.${at + 1}`),
    );
    let port: number | undefined = 0;
    for (const server of servers) port = port === undefined ? port : await server.start(port);
    if (port !== undefined) return { servers, port };
  }
  throw new Error("no port is free on all addresses");
}

/** Addresses of the name from the next lookup on. */
function resolver(...first: readonly string[]) {
  let addresses = first;
  const lookup = vi.spyOn(dns.promises, "lookup").mockImplementation((async () => {
    if (addresses.length === 0) throw new Error("ENOTFOUND");
    return addresses.map((address) => ({ address, family: 4 }));
  }) as never);
  onTestFinished(() => lookup.mockRestore());
  return {
    lookup,
    set: (...next: readonly string[]) => {
      addresses = next;
    },
  };
}

/** A pool whose names are resolved by the test instead of every five seconds. */
function poolOf(port: number) {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  let checks = 0;
  const known = new WeakSet<object>();
  const pool = new TritonPool({
    targets: [`${name}:${port}`],
    check: async (triton, options) => {
      if (!(await triton.ready(undefined, options))) throw new Error("not ready");
      if (!known.has(triton)) checks += 1;
      known.add(triton);
    },
  });
  onTestFinished(() => void vi.useRealTimers());
  onTestFinished(() => pool.close());
  return {
    pool,
    /** Number of connections made. */
    connections: () => checks,
    lookUpAgain: () => vi.advanceTimersByTimeAsync(5_000),
  };
}

async function send(pool: TritonPool, times: number): Promise<void> {
  for (let i = 0; i < times; i += 1) {
    await pool.run("test", (triton, options) => triton.serverMetadata(options), {
      timeoutMs: 10_000,
    });
  }
}

/** Returns how many of `times` requests each server received. */
async function shares(pool: TritonPool, servers: readonly CountingServer[], times: number) {
  const before = servers.map(({ requestCount }) => requestCount);
  await send(pool, times);
  return servers.map(({ requestCount }, at) => requestCount - before[at]!);
}

/** A promise that is pending until it is opened. */
function gate(): { readonly closed: Promise<void>; open(): void } {
  let open = () => {};
  const closed = new Promise<void>((resolve) => {
    open = resolve;
  });
  onTestFinished(() => open());
  return { closed, open: () => open() };
}

const addressesOf = (servers: readonly CountingServer[]) => servers.map(({ address }) => address);
// other systems have only 127.0.0.1
const onLinux = test.runIf(process.platform === "linux");

onLinux("distributes the calls to a name over all of its addresses", async () => {
  const { servers, port } = await serversOn(3);
  resolver(...addressesOf(servers));
  const { pool } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(3), { timeout: 10_000 });
  expect(await shares(pool, servers, 30)).toEqual([10, 10, 10]);
});

onLinux("sends a call to the Triton server with the fewest outstanding calls", async () => {
  const { servers, port } = await serversOn(2);
  const [slow, fast] = servers as [CountingServer, CountingServer];
  resolver(...addressesOf(servers));
  const { pool } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(2), { timeout: 10_000 });
  const { closed, open } = gate();
  slow.gate = closed;
  const held = [send(pool, 1), send(pool, 1)];
  await vi.waitFor(() => expect([slow.requestCount, fast.requestCount]).toEqual([1, 1]), {
    timeout: 10_000,
  });
  expect(await shares(pool, servers, 5)).toEqual([0, 5]);
  open();
  await Promise.all(held);
});

onLinux("completes the outstanding calls to a removed address", async () => {
  const { servers, port } = await serversOn(2);
  const [leaves, stays] = servers as [CountingServer, CountingServer];
  const names = resolver(leaves.address);
  const { pool, lookUpAgain } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(1), { timeout: 10_000 });
  const { closed, open } = gate();
  leaves.gate = closed;
  const held = send(pool, 1);
  await vi.waitFor(() => expect(leaves.requestCount).toBe(1), { timeout: 10_000 });
  names.set(stays.address);
  await lookUpAgain();
  await vi.waitFor(() => expect(pool.healthy).toBe(1), { timeout: 10_000 });
  expect(await shares(pool, servers, 3)).toEqual([0, 3]);
  open();
  await held;
  expect(stays.requestCount).toBe(3);
});

onLinux("uses a new address and stops using a removed one", async () => {
  const { servers, port } = await serversOn(3);
  const [one, two, three] = servers as [CountingServer, CountingServer, CountingServer];
  const names = resolver(one.address, two.address);
  const { pool, connections, lookUpAgain } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(2), { timeout: 10_000 });
  names.set(two.address, three.address);
  await lookUpAgain();
  await vi.waitFor(() => expect(connections()).toBe(3), { timeout: 10_000 });
  await vi.waitFor(() => expect(pool.healthy).toBe(2), { timeout: 10_000 });
  const [gone, stays, comes] = await shares(pool, servers, 20);
  expect({ gone, stays, comes }).toEqual({ gone: 0, stays: 10, comes: 10 });
});

onLinux("keeps its connections if the order of the addresses changes", async () => {
  const { servers, port } = await serversOn(3);
  const [one, two, three] = addressesOf(servers) as [string, string, string];
  const names = resolver(one, two, three);
  const { pool, connections, lookUpAgain } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(3), { timeout: 10_000 });
  const before = names.lookup.mock.calls.length;
  names.set(three, one, two);
  await lookUpAgain();
  await vi.waitFor(() => expect(names.lookup.mock.calls.length).toBeGreaterThan(before));
  expect(await shares(pool, servers, 30)).toEqual([10, 10, 10]);
  expect(connections()).toBe(3);
});

onLinux("goes on with the addresses that it knows while the name server is down", async () => {
  const { servers, port } = await serversOn(2);
  const names = resolver(...addressesOf(servers));
  const { pool, lookUpAgain } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(2), { timeout: 10_000 });
  const before = names.lookup.mock.calls.length;
  names.set();
  await lookUpAgain();
  await vi.waitFor(() => expect(names.lookup.mock.calls.length).toBeGreaterThan(before));
  expect(await shares(pool, servers, 10)).toEqual([5, 5]);
});

onLinux("loses no call while one address after another is replaced", async () => {
  const { servers, port } = await serversOn(4);
  const all = addressesOf(servers) as [string, string, string, string];
  const names = resolver(all[0], all[1]);
  const { pool, lookUpAgain } = poolOf(port);
  await vi.waitFor(() => expect(pool.healthy).toBe(2), { timeout: 10_000 });
  let stopped = false;
  let completed = 0;
  const clients = Array.from({ length: 4 }, async () => {
    for (; !stopped; completed += 1) await send(pool, 1);
  });
  for (const [old, next] of [
    [0, 2],
    [1, 3],
  ] as const) {
    const other = old === 0 ? all[1] : all[2];
    const before = servers[next]!.requestCount;
    names.set(other, all[next]);
    await lookUpAgain();
    await vi.waitFor(() => expect(servers[next]!.requestCount).toBeGreaterThan(before), {
      timeout: 10_000,
    });
    // the pod terminates after its address was removed
    servers[old]!.stop();
  }
  const after = completed;
  await vi.waitFor(() => expect(completed).toBeGreaterThan(after + 100), { timeout: 10_000 });
  stopped = true;
  await Promise.all(clients);
});
