import { connect, createServer, type Socket } from "node:net";
import { loopback } from "../../artefact/simulation-types.ts";
import { type Alarm, startAlarm } from "../load/alarm.ts";
import { clockMs } from "../load/worker-messages.ts";
import { median } from "../stats/statistics.ts";

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
  /** How much later than the link would have bytes were passed on so far, by the median piece, in milliseconds. */
  readonly medianLatenessMs: () => number;
  close(): Promise<void>;
}

/** Connections take turns on the link at this size, as packets do; small enough for 1 Mbit/s. */
const pieceBytes = 16 * 1024;
/** So many deliveries tell how late they are. */
const latenessLimit = 100_000;
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
  const timeline = new Timeline();
  const [up, down] = [new Direction(link, timeline), new Direction(link, timeline)];
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const backend = connect({ ...target, allowHalfOpen: true, noDelay: true });
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
    // the handshake is over then; until then nothing is on the link
    timeline.add(clockMs() + link.roundTripMs, () => {
      up.carry(client, backend);
      down.carry(backend, client);
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, loopback, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : 0,
    bytes: () => ({ up: up.bytes, down: down.bytes }),
    medianLatenessMs: () => median(timeline.lateness) ?? 0,
    async close() {
      await timeline.stop();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      });
    },
  };
}

/** Does what is due, in the order of its times. */
class Timeline {
  /** Of the last things that were done, in milliseconds. */
  readonly lateness: number[] = [];
  readonly #events: { readonly atMs: number; readonly run: () => void }[] = [];
  readonly #alarm: Alarm = startAlarm(() => this.#ring());

  add(atMs: number, run: () => void): void {
    // nearly always at the end: what comes later is added later
    let at = this.#events.length;
    while (at > 0 && (this.#events[at - 1]?.atMs ?? 0) > atMs) at--;
    this.#events.splice(at, 0, { atMs, run });
    if (at === 0) this.#alarm.set(atMs);
  }

  async stop(): Promise<void> {
    this.#events.length = 0;
    await this.#alarm.close();
  }

  #ring(): void {
    const now = clockMs();
    let due = 0;
    while ((this.#events[due]?.atMs ?? Number.POSITIVE_INFINITY) <= now) due++;
    for (const { atMs, run } of this.#events.splice(0, due)) {
      if (this.lateness.length < latenessLimit) this.lateness.push(now - atMs);
      run();
    }
    this.#alarm.set(this.#events[0]?.atMs ?? Number.POSITIVE_INFINITY);
  }
}

/** One direction of a link: a queue that is emptied at a rate, and a delay. */
class Direction {
  bytes = 0;
  readonly #bytesPerMs: number;
  readonly #delayMs: number;
  readonly #queueLimit: number;
  /** Senders that wait, and why: the queue is full, or the receiver does not take more. */
  readonly #held = new Set<Socket>();
  readonly #blocked = new Set<Socket>();
  #queued = 0;
  /** When the last byte in the queue has left. */
  #freeAtMs = 0;

  constructor(
    { bandwidthMbps = Number.POSITIVE_INFINITY, roundTripMs }: Link,
    private readonly timeline: Timeline,
  ) {
    this.#bytesPerMs = (bandwidthMbps * 1e6) / 8 / 1_000;
    this.#delayMs = roundTripMs / 2;
    // what is under way on a link that is full, and as much before it
    const underWay = Number.isFinite(this.#bytesPerMs) ? this.#bytesPerMs * roundTripMs : 0;
    this.#queueLimit = Math.max(minimumQueueBytes, 2 * underWay);
  }

  carry(from: Socket, to: Socket): void {
    from.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      for (let at = 0; at < chunk.length; at += pieceBytes) {
        const piece = chunk.subarray(at, at + pieceBytes);
        this.#add(piece.length, () => {
          if (!to.destroyed && !to.write(piece)) this.#block(from, to);
        });
      }
      if (this.#queued <= this.#queueLimit) return;
      this.#held.add(from);
      from.pause();
    });
    from.once("end", () => this.#add(0, () => to.end()));
    from.once("close", () => {
      this.#held.delete(from);
      this.#blocked.delete(from);
    });
  }

  #add(bytes: number, deliver: () => void): void {
    const startsAtMs = Math.max(clockMs(), this.#freeAtMs);
    this.#freeAtMs = startsAtMs + bytes / this.#bytesPerMs;
    this.#queued += bytes;
    this.timeline.add(this.#freeAtMs + this.#delayMs, () => {
      this.#queued -= bytes;
      deliver();
      if (this.#queued > this.#queueLimit / 2) return;
      const held = [...this.#held];
      this.#held.clear();
      for (const socket of held) this.#resume(socket);
    });
  }

  #block(from: Socket, to: Socket): void {
    if (this.#blocked.has(from)) return;
    this.#blocked.add(from);
    from.pause();
    to.once("drain", () => {
      this.#blocked.delete(from);
      this.#resume(from);
    });
  }

  /** Only what neither the queue nor the receiver holds up. */
  #resume(socket: Socket): void {
    if (!(this.#held.has(socket) || this.#blocked.has(socket))) socket.resume();
  }
}
