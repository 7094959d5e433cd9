import { once } from "node:events";
import { createServer, type Server as HttpServer, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Server } from "node:net";

export interface TestListener {
  readonly port: number;
  /** Closes the listener and its connections. */
  stop(): Promise<void>;
}

/** Starts a server on a free port of 127.0.0.1. */
export async function listen(server: Server = createTcpServer()): Promise<TestListener> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async stop() {
      (server as Partial<HttpServer>).closeAllConnections?.();
      if (!server.listening) return;
      server.close();
      await once(server, "close");
    },
  };
}

/** Starts an HTTP server that responds as the test specifies. */
export async function listenHttp(
  listener: RequestListener,
): Promise<TestListener & { readonly url: string }> {
  const started = await listen(createServer(listener));
  return { ...started, url: `http://127.0.0.1:${started.port}` };
}

/** Returns a port of 127.0.0.1 without a listener. */
export async function closedPort(): Promise<number> {
  const { port, stop } = await listen();
  await stop();
  return port;
}
