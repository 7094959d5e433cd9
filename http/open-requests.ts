import type { Socket } from "node:net";
import { Server as TlsServer } from "node:tls";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Maximum number of requests of a connection that are handled at a time. Further pipelined requests wait for the responses. */
const maxHandled = 4;

/** Maximum number of requests of a connection without a response. The last one closes the connection, further ones are discarded. */
const maxOpen = 100;

/** Maximum time in which a client must read a part of a response, in milliseconds. */
export const readTimeoutMs = 30_000;

/** Requests of a connection without a complete response. */
class Connection {
  open = 0;
  handled = 0;
  /** Starts the requests that were received while others were being handled. */
  readonly waiting: (() => void)[] = [];
  /** Ends the open requests, in the order in which they were received. */
  readonly ends = new Set<(wasSent: boolean) => void>();
  isFull = false;
}

const connections = new WeakMap<Socket, Connection>();

function connectionOf(socket: Socket): Connection {
  const existing = connections.get(socket);
  if (existing !== undefined) return existing;
  const connection = new Connection();
  connections.set(socket, connection);
  socket.once("close", () => {
    connection.waiting.length = 0;
    for (const end of connection.ends) end(false);
  });
  return connection;
}

/**
 * Calls `callback` once, when the response has been sent or the connection has closed. A response that waits for an earlier one of its
 * connection emits no event when the connection closes.
 */
export function onceEnded(
  { raw: { socket } }: FastifyRequest,
  { raw: response }: FastifyReply,
  callback: (wasSent: boolean) => void,
): void {
  const { ends } = connectionOf(socket);
  const end = (wasSent: boolean) => {
    if (ends.delete(end)) callback(wasSent);
  };
  ends.add(end);
  // a destroyed connection also emits `finish`
  response.once("finish", () => end(!socket.destroyed)).once("close", () => end(false));
}

/**
 * Bounds the memory of responses that clients do not read: limits the requests of each connection, and closes connections whose
 * client stops reading. Call it before other hooks are added.
 */
export function limitUnreadResponses(app: FastifyInstance): void {
  app.addHook("onRequest", (request, reply, start) => {
    const { socket } = request.raw;
    const connection = connectionOf(socket);
    if (connection.isFull) return;
    connection.open += 1;
    connection.isFull = connection.open === maxOpen;
    if (connection.isFull) reply.header("connection", "close");
    const handle = () => {
      connection.handled += 1;
      onceEnded(request, reply, () => {
        connection.open -= 1;
        connection.handled -= 1;
        if (socket.destroyed) return;
        const next = connection.waiting.shift();
        next?.();
        if (next !== undefined && connection.waiting.length === 0) socket.resume();
      });
      start();
    };
    if (connection.handled < maxHandled) {
      handle();
      return;
    }
    connection.waiting.push(handle);
    socket.pause();
  });
  app.server.timeout = readTimeoutMs;
  app.server.on("timeout", (socket: Socket) => {
    const isIdle = (connections.get(socket)?.open ?? 0) === 0;
    if (isIdle || socket.writableLength > 0) socket.destroy();
  });
}

/** Minimum time between two warnings about the maximum number of connections, in milliseconds. */
const warningMs = 60_000;

/**
 * Limits the open connections. A new connection at the limit takes the place of the one that has been idle for the longest time, so
 * that health checks are answered; it is closed only if every other has a request.
 */
export function limitConnections(app: FastifyInstance, maximum: number): void {
  /** In the order of their last request, or since they were opened. */
  const sockets = new Set<Socket>();
  let warnedAt = Number.NEGATIVE_INFINITY;
  const warn = (what: string) => {
    if (performance.now() - warnedAt < warningMs) return;
    warnedAt = performance.now();
    app.log.warn(`MAX_CONNECTIONS (${maximum}) connections are open: ${what}`);
  };
  app.server.on(app.server instanceof TlsServer ? "secureConnection" : "connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    if (sockets.size <= maximum) return;
    const isIdle = (other: Socket) => (connections.get(other)?.open ?? 0) === 0;
    // the new connection is the last one
    const closed = [...sockets].find(isIdle) ?? socket;
    warn(closed === socket ? "a new one was closed" : "idle ones are closed for new ones");
    sockets.delete(closed);
    closed.destroy();
  });
  app.addHook("onRequest", (request, reply, done) => {
    const { socket } = request.raw;
    onceEnded(request, reply, () => {
      if (sockets.delete(socket)) sockets.add(socket);
    });
    done();
  });
  // of TLS connections, handshakes are limited too
  app.server.maxConnections = 2 * maximum;
}
