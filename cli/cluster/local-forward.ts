import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { pipeline } from "node:stream";
import { connect } from "node:tls";

export interface Forward {
  /** Local port on the loopback interface. */
  readonly port: number;
  close(): void;
}

/** Listens on a free local port. */
export async function listen(onConnection: (socket: Socket) => void): Promise<Forward> {
  const server = createServer((socket) => {
    socket.on("error", () => void socket.destroy());
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: (server.address() as AddressInfo).port, close: () => void server.close() };
}

/**
 * Local port in plain text before a port with TLS, which closes with it.
 *
 * @param servername - Required name in the certificate.
 * @throws {Error} if the certificate is not valid.
 */
export async function withoutTls(
  encrypted: Forward,
  servername: string,
  ca: string[],
  signal: AbortSignal,
): Promise<Forward> {
  const options = { host: "127.0.0.1", port: encrypted.port, servername, ca };
  const probe = connect(options);
  await once(probe, "secureConnect", { signal });
  probe.destroy();
  const plain = await listen((socket) => {
    pipeline(socket, connect(options), socket, () => {});
  });
  return {
    port: plain.port,
    close: () => {
      plain.close();
      encrypted.close();
    },
  };
}
