import { once } from "node:events";
import { type AddressInfo, createServer, connect as openSocket, type Socket } from "node:net";

/** TCP proxy whose existing connections can be frozen: they stay open and carry nothing, as behind a network device that drops them. */
export interface FreezingProxy {
  readonly port: number;
  /** Number of connections so far. */
  readonly connections: number;
  freeze(): void;
  stop(): void;
}

/** @param target - Port of 127.0.0.1. */
export async function startFreezingProxy(target: number): Promise<FreezingProxy> {
  let frozen = new AbortController();
  let connections = 0;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    connections += 1;
    const upstream = openSocket(target, "127.0.0.1");
    const { signal } = frozen;
    const pairs = [
      [client, upstream],
      [upstream, client],
    ] as const;
    for (const [from, to] of pairs) {
      sockets.add(from);
      from.on("error", () => {});
      from.on("data", (data) => signal.aborted || to.write(data));
      from.on("close", () => signal.aborted || to.destroy());
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return connections;
    },
    freeze() {
      frozen.abort();
      frozen = new AbortController();
    },
    stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
