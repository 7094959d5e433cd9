import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { PassThrough } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { loopback } from "../../artefact/simulation-types.ts";

/** Symmetric network link, shared by all connections. */
export interface Link {
  /** Bandwidth in each direction, in 10^6 bits per second; if absent, unlimited. */
  readonly bandwidthMbps?: number;
  /** Round-trip time in milliseconds; half of it is added in each direction. */
  readonly roundTripMs: number;
}

export interface LinkProxy {
  /** Port on 127.0.0.1. */
  readonly port: number;
  close(): Promise<void>;
}

/** Number of bytes that a connection sends before another one may use the link, small enough for 1 Mbit/s. */
const pieceBytes = 16 * 1024;
/** Pieces of a connection on the link, 4 MiB, after which its sender is paused. */
const maxPieces = 256;

/** Bytes on the link. */
interface Piece {
  readonly bytes: Buffer;
  /** Time of arrival, as of `performance.now()`. */
  readonly atMs: number;
}

/**
 * Starts a TCP proxy that emulates a link: bytes leave sequentially at its rate and arrive half a round trip later. A new
 * connection waits for one round trip, like a handshake. Packet loss and TCP slow start are not emulated, so figures apply
 * to warm connections.
 */
export async function startLinkProxy(
  target: { readonly host: string; readonly port: number },
  link: Link,
): Promise<LinkProxy> {
  const sockets = new Set<Socket>();
  const [up, down] = [new Direction(link), new Direction(link)];
  const join = async (client: Socket) => {
    const ends = [client, connect({ ...target, allowHalfOpen: true, noDelay: true })] as const;
    for (const socket of ends) {
      sockets.add(socket);
      // "close" follows
      socket.on("error", () => {});
      socket.once("close", () => sockets.delete(socket));
    }
    // nothing is forwarded before the end of the emulated handshake
    await sleep(link.roundTripMs);
    const [, backend] = ends;
    await Promise.all([up.carry(client, backend), down.carry(backend, client)]).catch(() => {});
    for (const socket of ends) socket.destroy();
  };
  const server = createServer(
    { allowHalfOpen: true, noDelay: true },
    (client) => void join(client),
  );
  server.listen(0, loopback);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, "close");
    },
  };
}

/** One direction of a link: its rate is shared by all connections, and a delay follows. */
class Direction {
  readonly #bytesPerMs: number;
  readonly #delayMs: number;
  /** Time at which the last byte leaves. */
  #freeAtMs = 0;

  constructor({ bandwidthMbps = Number.POSITIVE_INFINITY, roundTripMs }: Link) {
    this.#bytesPerMs = (bandwidthMbps * 1e6) / 8 / 1_000;
    this.#delayMs = roundTripMs / 2;
  }

  carry(from: Socket, to: Socket): Promise<void> {
    return pipeline(
      from,
      (chunks: AsyncIterable<Buffer>) => this.#send(chunks),
      new PassThrough({ objectMode: true, highWaterMark: maxPieces }),
      arrivals,
      to,
    );
  }

  async *#send(chunks: AsyncIterable<Buffer>): AsyncGenerator<Piece> {
    for await (const chunk of chunks) {
      for (let at = 0; at < chunk.length; at += pieceBytes) {
        const bytes = chunk.subarray(at, at + pieceBytes);
        const startsAtMs = Math.max(performance.now(), this.#freeAtMs);
        this.#freeAtMs = startsAtMs + bytes.length / this.#bytesPerMs;
        yield { bytes, atMs: this.#freeAtMs + this.#delayMs };
      }
    }
  }
}

/** Bytes of the pieces when they are due. */
async function* arrivals(pieces: AsyncIterable<Piece>): AsyncGenerator<Buffer> {
  for await (const { bytes, atMs } of pieces) {
    const waitMs = atMs - performance.now();
    if (waitMs > 0) await sleep(waitMs);
    yield bytes;
  }
}
