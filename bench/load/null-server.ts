import { once } from "node:events";
import {
  createServer as createHttp2Server,
  type Http2Server,
  type ServerHttp2Session,
} from "node:http2";
import { type AddressInfo, createServer, type Socket } from "node:net";

/** Server without work, to measure the load generator itself. */
export interface NullServer {
  /** `http://127.0.0.1:port`, or `127.0.0.1:port` for gRPC. */
  readonly url: string;
  /** Number of responses. */
  readonly responses: number;
  /** Holds all responses for a time in milliseconds. */
  pause(ms: number): void;
  close(): Promise<void>;
}

export interface NullServerOptions {
  /** Delay of each response. */
  readonly delayMs?: number;
  /** Size of a response body, by default that of an embedding. */
  readonly responseBytes?: number;
}

const embeddingBytes = 2_048;

/** Holds responses during a pause. */
class Gate {
  #openAt = 0;

  pause(ms: number): void {
    this.#openAt = performance.now() + ms;
  }

  pass(delayMs: number, answer: () => void): void {
    const waitMs = Math.max(delayMs, this.#openAt - performance.now());
    if (waitMs > 0) setTimeout(answer, waitMs);
    else answer();
  }
}

/** HTTP server that reads only the length of a request and returns a constant response. */
export async function startNullHttpServer({
  delayMs = 0,
  responseBytes = embeddingBytes,
}: NullServerOptions = {}): Promise<NullServer> {
  const gate = new Gate();
  const sockets = new Set<Socket>();
  const answer = Buffer.concat([
    Buffer.from(
      `HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: ${responseBytes}\r\n\r\n`,
    ),
    Buffer.alloc(responseBytes),
  ]);
  let answered = 0;
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    let head: Buffer = Buffer.alloc(0);
    /** Remaining bytes of the body. */
    let left = 0;
    const read = (chunk: Buffer): void => {
      if (left > 0) {
        const size = Math.min(left, chunk.length);
        left -= size;
        if (left > 0) return;
        reply();
        if (size < chunk.length) read(chunk.subarray(size));
        return;
      }
      head = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = /content-length: *(\d+)/i.exec(head.toString("latin1", 0, end))?.[1];
      const rest = head.subarray(end + 4);
      head = Buffer.alloc(0);
      left = Number(length ?? 0);
      if (left === 0) reply();
      if (rest.length > 0) read(rest);
    };
    const reply = (): void => {
      gate.pass(delayMs, () => {
        answered += 1;
        socket.write(answer);
      });
    };
    socket.on("data", read);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get responses() {
      return answered;
    },
    pause: (ms) => gate.pause(ms),
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** gRPC server that responds to any method with a message of zero bytes. */
export async function startNullGrpcServer({
  delayMs = 0,
  responseBytes = embeddingBytes,
}: NullServerOptions = {}): Promise<NullServer> {
  const gate = new Gate();
  const sessions = new Set<ServerHttp2Session>();
  const message = Buffer.alloc(5 + responseBytes);
  message.writeUInt32BE(responseBytes, 1);
  let answered = 0;
  const server: Http2Server = createHttp2Server({
    settings: { initialWindowSize: 8 * 1024 * 1024 },
  });
  server.on("session", (session) => {
    sessions.add(session);
    session.setLocalWindowSize(8 * 1024 * 1024);
    session.on("close", () => sessions.delete(session));
    session.on("error", () => {});
  });
  server.on("stream", (stream) => {
    stream.on("error", () => {});
    stream.resume();
    stream.on("end", () =>
      gate.pass(delayMs, () => {
        if (stream.destroyed) return;
        answered += 1;
        stream.respond(
          { ":status": 200, "content-type": "application/grpc" },
          { waitForTrailers: true },
        );
        stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
        stream.end(message);
      }),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get responses() {
      return answered;
    },
    pause: (ms) => gate.pause(ms),
    async close() {
      for (const session of sessions) session.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
