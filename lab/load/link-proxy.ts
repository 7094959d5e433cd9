import { connect, createServer, type Socket } from "node:net";
import { loopback } from "../../artefact/simulation-types.ts";
import { type Alarm, startAlarm } from "../../target/load/alarm.ts";
import { clockMs } from "../../target/load/worker-messages.ts";
import { median } from "../../target/stats/statistics.ts";

/** Symmetric network link, shared by all connections. */
export interface Link {
  /** Bandwidth in each direction, in 10^6 bits per second; absent: unlimited. */
  readonly bandwidthMbps?: number;
  /** Round-trip time in milliseconds; half of it is added in each direction. */
  readonly roundTripMs: number;
}

export interface LinkProxy {
  /** Port on 127.0.0.1. */
  readonly port: number;
  /** Bytes received so far from clients (`up`) and from the server (`down`). */
  readonly bytes: () => { readonly up: number; readonly down: number };
  /** Median delay of forwarded chunks beyond that of the emulated link, in milliseconds. */
  readonly medianLatenessMs: () => number;
  close(): Promise<void>;
}

/** Chunk size at which connections share the link, as with packets; small enough for 1 Mbit/s. */
const chunkBytes = 16 * 1024;
/** Maximum number of recorded delays. */
const maxLatenessSamples = 100_000;
/** Minimum queue length before a sender is paused. */
const minQueueBytes = 256 * 1024;

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
    // nothing is forwarded before the end of the emulated handshake
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

/** Runs actions at their due times, in order. */
class Timeline {
  /** Delays of the actions in milliseconds. */
  readonly lateness: number[] = [];
  readonly #events: { readonly atMs: number; readonly run: () => void }[] = [];
  readonly #alarm: Alarm = startAlarm(() => this.#ring());

  add(atMs: number, run: () => void): void {
    // usually appended, because due times mostly increase
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
      if (this.lateness.length < maxLatenessSamples) this.lateness.push(now - atMs);
      run();
    }
    this.#alarm.set(this.#events[0]?.atMs ?? Number.POSITIVE_INFINITY);
  }
}

/** One direction of a link: a queue drained at the link's rate, followed by a delay. */
class Direction {
  bytes = 0;
  readonly #bytesPerMs: number;
  readonly #delayMs: number;
  readonly #queueLimit: number;
  /** Senders paused because the queue is full. */
  readonly #queueBlocked = new Set<Socket>();
  /** Senders paused because the receiver accepts no more. */
  readonly #receiverBlocked = new Set<Socket>();
  #queued = 0;
  /** Time at which the last queued byte leaves. */
  #freeAtMs = 0;

  constructor(
    { bandwidthMbps = Number.POSITIVE_INFINITY, roundTripMs }: Link,
    private readonly timeline: Timeline,
  ) {
    this.#bytesPerMs = (bandwidthMbps * 1e6) / 8 / 1_000;
    this.#delayMs = roundTripMs / 2;
    // twice the bandwidth-delay product
    const inFlight = Number.isFinite(this.#bytesPerMs) ? this.#bytesPerMs * roundTripMs : 0;
    this.#queueLimit = Math.max(minQueueBytes, 2 * inFlight);
  }

  carry(from: Socket, to: Socket): void {
    from.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      for (let at = 0; at < chunk.length; at += chunkBytes) {
        const part = chunk.subarray(at, at + chunkBytes);
        this.#add(part.length, () => {
          if (!to.destroyed && !to.write(part)) this.#block(from, to);
        });
      }
      if (this.#queued <= this.#queueLimit) return;
      this.#queueBlocked.add(from);
      from.pause();
    });
    from.once("end", () => this.#add(0, () => to.end()));
    from.once("close", () => {
      this.#queueBlocked.delete(from);
      this.#receiverBlocked.delete(from);
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
      const waiting = [...this.#queueBlocked];
      this.#queueBlocked.clear();
      for (const socket of waiting) this.#resume(socket);
    });
  }

  #block(from: Socket, to: Socket): void {
    if (this.#receiverBlocked.has(from)) return;
    this.#receiverBlocked.add(from);
    from.pause();
    to.once("drain", () => {
      this.#receiverBlocked.delete(from);
      this.#resume(from);
    });
  }

  /** Resumes a sender unless the queue or the receiver blocks it. */
  #resume(socket: Socket): void {
    if (!(this.#queueBlocked.has(socket) || this.#receiverBlocked.has(socket))) socket.resume();
  }
}
