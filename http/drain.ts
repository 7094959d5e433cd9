import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Server as NetServer, type Socket } from "node:net";
import { setImmediate as nextIteration, setTimeout as sleep } from "node:timers/promises";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { onceEnded } from "./open-requests.ts";

/**
 * A quiet period is a number of iterations of the event loop, each this long. It is counted, not timed, because sockets are
 * read in every iteration: a timer that fires late closes connections before their requests are read.
 */
const quietIterations = 10;
const iterationMs = 30;

/** Shortest duration of a quiet period, in milliseconds. */
export const quietMs = quietIterations * iterationMs;

/** Minimum time for which a stop waits for more bytes of arriving requests, in milliseconds. */
const arrivalMs = 3_000;

/** Maximum number of connections that the kernel holds for a listener until they are accepted: Node's default. */
const backlog = 511;

/** Waits for a quiet period, in which no connection is closed. */
export async function quiet(iterations = quietIterations): Promise<void> {
  for (let iteration = 0; iteration < iterations; iteration++) {
    await sleep(iterationMs);
    await nextIteration();
  }
}

/**
 * Waits for requests that are arriving, as long as they make progress.
 *
 * @param received - Returns the number of bytes received; `undefined` once no request is arriving.
 */
export async function arrival(received: () => number | undefined): Promise<void> {
  let bytes = received();
  for (let idle = 0; bytes !== undefined && idle < arrivalMs / iterationMs; idle++) {
    await quiet(1);
    const now = received();
    if (now !== bytes) idle = 0;
    bytes = now;
  }
}

/** Open connections of a server that does not expose its listener. */
export class ConnectionTracker {
  readonly #sockets = new Set<Socket>();
  readonly #port: number;
  readonly #onSocket = (message: unknown) => {
    const { socket } = message as { readonly socket: Socket };
    if (socket.localPort !== this.#port) return;
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
  };

  constructor(port: number) {
    this.#port = port;
    subscribe(socketChannel, this.#onSocket);
  }

  /** Bytes received on open connections. */
  get bytesRead(): number {
    return bytesReadOf(this.#sockets);
  }

  stop(): void {
    unsubscribe(socketChannel, this.#onSocket);
  }
}

/** Channel on which Node publishes each accepted connection. */
const socketChannel = "net.server.socket";

function bytesReadOf(sockets: Iterable<Socket>): number {
  let bytes = 0;
  for (const { bytesRead } of sockets) bytes += bytesRead;
  return bytes;
}

/** Time before the end of the grace period at which unread responses are cut, in milliseconds: the rest of the stop follows. */
const cutMs = 1_000;

/**
 * Drains an HTTP server whose responses close their connections. The listener stays open for a quiet period, in which
 * clients learn that the server stops. Connections that are open then stay open until no request begins or ends for a
 * quiet period. At the end of the grace period, responses that their clients do not read are cut.
 *
 * @param graceMs - Grace period in milliseconds.
 */
export async function drainHttp(
  app: FastifyInstance,
  requests: TrackedRequests,
  graceMs = Number.POSITIVE_INFINITY,
): Promise<void> {
  const cutAt = performance.now() + Math.max(graceMs / 2, graceMs - cutMs);
  const cutting = setInterval(() => {
    if (performance.now() < cutAt || !requests.onlyUnread) return;
    app.log.warn("the grace period ends: responses that their clients do not read are cut");
    app.server.closeAllConnections();
  }, iterationMs);
  try {
    await drain(app.server, requests);
  } finally {
    clearInterval(cutting);
  }
}

async function drain(server: FastifyInstance["server"], requests: TrackedRequests): Promise<void> {
  let closed: Promise<unknown> = Promise.resolve();
  if (server.listening) {
    await quiet();
    await acceptBacklog(server);
    // the listener only: close() of an HTTP server also closes idle connections
    closed = new Promise((resolve) => NetServer.prototype.close.call(server, resolve));
  }
  let changes: number;
  do {
    changes = requests.changes;
    await requests.arrived();
    await Promise.race([closed, quiet()]);
    await requests.answered();
  } while (requests.changes > changes);
  server.closeAllConnections();
}

/** Accepts the connections that closing the listener would reset. An iteration accepts as little as one. */
async function acceptBacklog(server: NetServer): Promise<void> {
  let accepted = true;
  const onConnection = () => {
    accepted = true;
  };
  server.on("connection", onConnection);
  for (let iteration = 0; accepted && iteration < backlog; iteration++) {
    accepted = false;
    await nextIteration();
  }
  server.off("connection", onConnection);
}

/** Accepted requests that a stop waits for. */
export interface AcceptedRequests {
  /** Resolves when every request that arrived completely has its response. */
  answered(): Promise<void>;
}

/** Accepted and arriving requests that the stop of an HTTP server waits for. */
export interface TrackedRequests extends AcceptedRequests {
  /** Number of requests that have begun, plus the number of those that have ended. */
  readonly changes: number;
  /** Whether requests are open, and the server has handed over the responses of all that arrived. */
  readonly onlyUnread: boolean;
  /** Resolves when no request is arriving, or when none has progressed for about {@link arrivalMs}. */
  arrived(): Promise<void>;
}

/** Status in the metrics of a request whose client disconnected before the response, as in nginx. */
const clientClosedRequest = 499;

/**
 * Tracks the requests of an HTTP server. A request is accepted once its body has arrived: until then its client may never send
 * the rest.
 *
 * @param onEnd - Called for each request that was answered or whose client disconnected (unlike Fastify's onResponse).
 */
export function trackRequests(
  app: FastifyInstance,
  onEnd: (request: FastifyRequest, reply: FastifyReply, status: number) => void = () => {},
): TrackedRequests {
  const open = new Set<FastifyRequest>();
  const responded = new WeakSet<FastifyRequest>();
  let changes = 0;
  const waiting: (() => void)[] = [];
  const allAnswered = () => {
    for (const { raw } of open) if (raw.complete) return false;
    return true;
  };

  app.addHook("onRequest", async (request, reply) => {
    open.add(request);
    changes += 1;
    onceEnded(request, reply, (wasSent) => {
      open.delete(request);
      changes += 1;
      onEnd(request, reply, wasSent ? reply.statusCode : clientClosedRequest);
      if (waiting.length === 0 || !allAnswered()) return;
      for (const resolve of waiting.splice(0)) resolve();
    });
  });
  app.addHook("onSend", async (request) => {
    responded.add(request);
  });
  return {
    get changes() {
      return changes;
    },
    get onlyUnread() {
      for (const request of open) if (request.raw.complete && !responded.has(request)) return false;
      return open.size > 0;
    },
    answered: () =>
      new Promise((resolve) => {
        if (allAnswered()) resolve();
        else waiting.push(resolve);
      }),
    arrived: () =>
      arrival(() => {
        const arriving = [...open].flatMap(({ raw }) => (raw.complete ? [] : [raw.socket]));
        return arriving.length === 0 ? undefined : bytesReadOf(arriving);
      }),
  };
}

/** Tracks accepted calls that are not Fastify requests. */
export class CallCounter implements AcceptedRequests {
  #open = 0;
  readonly #waiting: (() => void)[] = [];

  async during<T>(call: () => T | Promise<T>): Promise<T> {
    this.#open += 1;
    try {
      return await call();
    } finally {
      this.#open -= 1;
      if (this.#open === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    }
  }

  answered(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#open === 0) resolve();
      else this.#waiting.push(resolve);
    });
  }
}
