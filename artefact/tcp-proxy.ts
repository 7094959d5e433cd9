import { connect, createServer, type Socket } from "node:net";
import { loopback } from "./simulation-types.ts";

/** Proxy that spreads connections over several ports in turn, as a Kubernetes Service does. */
export interface TcpProxy {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * Listens on `port` (0: any free port) and forwards each connection to the next backend. A backend that refuses the
 * connection is skipped, as a Service skips pods that are not ready.
 */
export async function startTcpProxy(port: number, backends: readonly number[]): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let connections = 0;

  const server = createServer((client) => {
    sockets.add(client);
    client.once("close", () => sockets.delete(client));
    client.on("error", () => client.destroy());
    const first = connections++;
    const tryBackend = (attempt: number): void => {
      const backendPort = backends[(first + attempt) % backends.length];
      if (backendPort === undefined || attempt === backends.length) {
        client.destroy();
        return;
      }
      const backend = connect(backendPort, loopback);
      backend.once("error", () => {
        backend.destroy();
        tryBackend(attempt + 1);
      });
      backend.once("connect", () => {
        backend.removeAllListeners("error");
        backend.on("error", () => client.destroy());
        sockets.add(backend);
        backend.once("close", () => sockets.delete(backend));
        client.once("close", () => backend.destroy());
        client.pipe(backend);
        backend.pipe(client);
      });
    };
    tryBackend(0);
  });

  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, loopback, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
