import { once } from "node:events";
import {
  createServer as createHttp2Server,
  type Http2Server,
  type ServerHttp2Session,
} from "node:http2";
import { type AddressInfo, createServer, type Socket } from "node:net";

/** A server that does nothing: what is measured against it is the generator. */
export interface NullServer {
  /** `http://127.0.0.1:port`, or `127.0.0.1:port` for gRPC. */
  readonly url: string;
  /** Requests that were answered. */
  readonly answered: number;
  /** Answer nothing for so long; what comes meanwhile is answered then. */
  pause(ms: number): void;
  close(): Promise<void>;
}

export interface NullServerOptions {
  /** From a request to its answer. */
  readonly delayMs?: number;
  /** Size of an answer's body: 2 KiB are an embedding. */
  readonly answerBytes?: number;
}

const embeddingBytes = 2_048;

/** When the next answer may leave. */
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

/** Reads no more of a request than its length, and gives the same answer to each. */
export async function startNullHttpServer({
  delayMs = 0,
  answerBytes = embeddingBytes,
}: NullServerOptions = {}): Promise<NullServer> {
  const gate = new Gate();
  const sockets = new Set<Socket>();
  const answer = Buffer.concat([
    Buffer.from(
      `HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: ${answerBytes}\r\n\r\n`,
    ),
    Buffer.alloc(answerBytes),
  ]);
  let answered = 0;
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket);
    let head: Buffer = Buffer.alloc(0);
    /** Of the body, not here yet. */
    let left = 0;
    const read = (chunk: Buffer): void => {
      if (left > 0) {
        const taken = Math.min(left, chunk.length);
        left -= taken;
        if (left > 0) return;
        reply();
        if (taken < chunk.length) read(chunk.subarray(taken));
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
    get answered() {
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

/** The same over gRPC: any method is answered with a message of so many zero bytes. */
export async function startNullGrpcServer({
  delayMs = 0,
  answerBytes = embeddingBytes,
}: NullServerOptions = {}): Promise<NullServer> {
  const gate = new Gate();
  const sessions = new Set<ServerHttp2Session>();
  const message = Buffer.alloc(5 + answerBytes);
  message.writeUInt32BE(answerBytes, 1);
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
    get answered() {
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
