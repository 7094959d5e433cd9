import { once } from "node:events";
import { createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** Server that only responds, to measure the load generator itself. */
export interface NullServer {
  /** `http://127.0.0.1:port`, or `127.0.0.1:port` for gRPC. */
  readonly url: string;
  /** Number of responses so far. */
  readonly responses: number;
  /** Delays all responses until a time in milliseconds has passed. */
  pause(ms: number): void;
  close(): Promise<void>;
}

export interface NullServerOptions {
  /** Time until a response, independent of other requests. */
  readonly delayMs?: number;
  /**
   * Queue in place of {@link delayMs}: a request occupies one of `servers` for `ms`, and waits in order of arrival until one is
   * free. The capacity is 1,000 × servers / ms requests per second.
   */
  readonly service?: Service;
  /** Size of a response body, by default that of an embedding. */
  readonly responseBytes?: number;
}

interface Service {
  readonly ms: number;
  readonly servers: number;
}

const embeddingBytes = 2_048;
const windowBytes = 8 * 1024 * 1024;

/** Sends responses after a delay. */
class Responder {
  responses = 0;
  #resumeMs = 0;
  /** Times at which the servers of the queue become free. */
  readonly #freeMs: number[];

  constructor(private readonly options: Pick<NullServerOptions, "delayMs" | "service">) {
    this.#freeMs = Array.from({ length: options.service?.servers ?? 0 }, () => 0);
  }

  pause(ms: number): void {
    this.#resumeMs = performance.now() + ms;
  }

  /** @param send - Called once the response is due. */
  respond(send: () => void): void {
    const count = () => {
      this.responses += 1;
      send();
    };
    const { delayMs = 0, service } = this.options;
    const nowMs = performance.now();
    const workMs = service === undefined ? delayMs : this.#serve(nowMs, service.ms);
    const waitMs = Math.max(workMs, this.#resumeMs - nowMs);
    if (waitMs > 0) setTimeout(count, waitMs);
    else count();
  }

  /** Time in queue and service of a request; a late timer does not delay the next ones, because the times are calculated. */
  #serve(nowMs: number, serviceMs: number): number {
    const next = this.#freeMs.indexOf(Math.min(...this.#freeMs));
    const doneMs = Math.max(nowMs, this.#freeMs[next] ?? 0) + serviceMs;
    this.#freeMs[next] = doneMs;
    return doneMs - nowMs;
  }
}

/** HTTP server that reads only the length of a request and returns a constant response. */
export async function startNullHttpServer({
  responseBytes = embeddingBytes,
  ...options
}: NullServerOptions = {}): Promise<NullServer> {
  const responder = new Responder(options);
  const sockets = new Set<Socket>();
  const response = Buffer.concat([
    Buffer.from(
      `HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: ${responseBytes}\r\n\r\n`,
    ),
    Buffer.alloc(responseBytes),
  ]);
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    const reply = () => responder.respond(() => socket.write(response));
    socket.on("data", requestReader(reply));
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  return listen(server, "http://", responder, sockets);
}

/** Returns a reader of a connection's bytes that calls `onRequest` at the end of each request. */
function requestReader(onRequest: () => void): (chunk: Buffer) => void {
  let head: Buffer = Buffer.alloc(0);
  let missingBodyBytes = 0;
  return function read(chunk) {
    if (missingBodyBytes > 0) {
      const size = Math.min(missingBodyBytes, chunk.length);
      missingBodyBytes -= size;
      if (missingBodyBytes > 0) return;
      onRequest();
      if (size < chunk.length) read(chunk.subarray(size));
      return;
    }
    head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    const length = /content-length: *(\d+)/i.exec(head.toString("latin1", 0, end))?.[1];
    const rest = head.subarray(end + 4);
    head = Buffer.alloc(0);
    missingBodyBytes = Number(length ?? 0);
    if (missingBodyBytes === 0) onRequest();
    if (rest.length > 0) read(rest);
  };
}

/** gRPC server that responds to any method with a message of zero bytes. */
export async function startNullGrpcServer({
  responseBytes = embeddingBytes,
  ...options
}: NullServerOptions = {}): Promise<NullServer> {
  const responder = new Responder(options);
  const sessions = new Set<{ destroy(): void }>();
  const message = Buffer.alloc(5 + responseBytes);
  message.writeUInt32BE(responseBytes, 1);
  const server = createHttp2Server({ settings: { initialWindowSize: windowBytes } });
  server.on("session", (session) => {
    sessions.add(session);
    session.setLocalWindowSize(windowBytes);
    session.on("close", () => sessions.delete(session));
    session.on("error", () => {});
  });
  server.on("stream", (stream) => {
    stream.on("error", () => {});
    stream.resume();
    stream.on("end", () =>
      responder.respond(() => {
        if (stream.destroyed) return;
        stream.respond(
          { ":status": 200, "content-type": "application/grpc" },
          { waitForTrailers: true },
        );
        stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
        stream.end(message);
      }),
    );
  });
  return listen(server, "", responder, sessions);
}

async function listen(
  server: Server,
  urlPrefix: string,
  responder: Responder,
  connections: ReadonlySet<{ destroy(): void }>,
): Promise<NullServer> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `${urlPrefix}127.0.0.1:${(server.address() as AddressInfo).port}`,
    get responses() {
      return responder.responses;
    },
    pause: (ms) => responder.pause(ms),
    async close() {
      for (const connection of connections) connection.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
