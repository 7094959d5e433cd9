import { connect, createServer, type Socket } from "node:net";
import { loopback } from "../src/embedded-plan.ts";

/** A link between a client and a server: the same in each direction, and shared by all connections. */
export interface Link {
  /** Bits that pass in each direction, in 10^6 a second; absent: no limit. */
  readonly bandwidthMbps?: number;
  /** There and back together, in milliseconds; half of it is added in each direction. */
  readonly roundTripMs: number;
}

export interface LinkProxy {
  /** On 127.0.0.1. */
  readonly port: number;
  /** Bytes that came in so far: from clients to the server, and back. */
  readonly bytes: () => { readonly up: number; readonly down: number };
  close(): Promise<void>;
}

/** Connections take turns on the link at this size, as packets do; small enough for 1 Mbit/s. */
const pieceBytes = 16 * 1024;
/** What waits before the link, at least, before a sender is held up. */
const minimumQueueBytes = 256 * 1024;

/**
 * A TCP proxy that is as slow as a link: bytes leave one after the other at its rate, and arrive half a round trip later. A new
 * connection waits for one round trip, as its handshake would. Lost packets and TCP's slow start are not emulated: the figures
 * are those of connections that have been open for a while.
 */
export async function startLinkProxy(
  target: { readonly host: string; readonly port: number },
  link: Link,
): Promise<LinkProxy> {
  const sockets = new Set<Socket>();
  const [up, down] = [new Direction(link), new Direction(link)];
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const backend = connect({ ...target, allowHalfOpen: true, noDelay: true });
    const notBefore = performance.now() + link.roundTripMs;
    for (const [socket, other] of [
      [client, backend],
      [backend, client],
    ] as const) {
      sockets.add(socket);
      socket.once("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      // "close" follows
      socket.on("error", () => {});
    }
    up.carry(client, backend, notBefore);
    down.carry(backend, client, notBefore);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, loopback, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    bytes: () => ({ up: up.bytes, down: down.bytes }),
    close: () =>
      new Promise((resolve) => {
        up.stop();
        down.stop();
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

interface Piece {
  /** Last of its bytes is at the other end, by `performance.now()`. */
  readonly arrivesAt: number;
  readonly bytes: number;
  readonly deliver: () => void;
}

/** One direction of a link: a queue that is emptied at a rate, and a delay. */
class Direction {
  bytes = 0;
  readonly #bytesPerMs: number;
  readonly #delayMs: number;
  readonly #queueLimit: number;
  readonly #pieces: Piece[] = [];
  readonly #held = new Set<Socket>();
  #queued = 0;
  /** When the last byte in the queue has left. */
  #freeAt = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor({ bandwidthMbps = Number.POSITIVE_INFINITY, roundTripMs }: Link) {
    this.#bytesPerMs = (bandwidthMbps * 1e6) / 8 / 1_000;
    this.#delayMs = roundTripMs / 2;
    // what is under way on a link that is full, and as much before it
    const underWay = Number.isFinite(this.#bytesPerMs) ? this.#bytesPerMs * roundTripMs : 0;
    this.#queueLimit = Math.max(minimumQueueBytes, 2 * underWay);
  }

  carry(from: Socket, to: Socket, notBefore: number): void {
    from.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      for (let at = 0; at < chunk.length; at += pieceBytes) {
        const piece = chunk.subarray(at, at + pieceBytes);
        this.#add(piece.length, notBefore, () => {
          if (to.destroyed || to.write(piece)) return;
          from.pause();
          to.once("drain", () => from.resume());
        });
      }
      if (this.#queued <= this.#queueLimit) return;
      from.pause();
      this.#held.add(from);
    });
    from.once("end", () => this.#add(0, notBefore, () => to.end()));
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#pieces.length = 0;
  }

  #add(bytes: number, notBefore: number, deliver: () => void): void {
    const startsAt = Math.max(performance.now(), this.#freeAt, notBefore);
    this.#freeAt = startsAt + bytes / this.#bytesPerMs;
    this.#queued += bytes;
    this.#pieces.push({ arrivesAt: this.#freeAt + this.#delayMs, bytes, deliver });
    if (this.#timer === undefined) this.#wait();
  }

  #wait(): void {
    const [next] = this.#pieces;
    if (next === undefined) {
      this.#timer = undefined;
      return;
    }
    // rounded up: a piece may be late by a timer's millisecond, and never early
    const ms = Math.max(0, Math.ceil(next.arrivesAt - performance.now()));
    this.#timer = setTimeout(() => this.#deliver(), ms);
  }

  #deliver(): void {
    const now = performance.now();
    let due = 0;
    while (due < this.#pieces.length && (this.#pieces[due] as Piece).arrivesAt <= now) due++;
    for (const { bytes, deliver } of this.#pieces.splice(0, due)) {
      this.#queued -= bytes;
      deliver();
    }
    if (this.#queued <= this.#queueLimit / 2) {
      for (const socket of this.#held) socket.resume();
      this.#held.clear();
    }
    this.#wait();
  }
}
