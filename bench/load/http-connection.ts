import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import { HttpAnswerReader } from "./http-answer-reader.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

/**
 * HTTP/1.1 over a socket, without a library: each request is one buffer that was written before the clock started, and of
 * an answer only its status and length are read. So the generator takes as little of a core as it can.
 */
export function httpConnections(prepared: PreparedRequests): OpenConnection {
  const { protocol, hostname, port, host } = new URL(prepared.url);
  const secure = protocol === "https:";
  const address = {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? (secure ? 443 : 80) : Number(port),
    noDelay: true,
    ...prepared.connect,
  };
  const open = secure
    ? () =>
        connectTls({ ...address, servername: prepared.connect?.servername ?? sniOf(address.host) })
    : () => connectTcp(address);
  const texts = prepared.requests.map(({ headers, body }) => {
    const head = Object.entries({
      host,
      ...prepared.headers,
      ...headers,
      "content-length": String(body.byteLength),
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    return Buffer.concat([
      Buffer.from(
        `${prepared.method ?? "POST"} ${prepared.path} HTTP/1.1\r\n${head.join("")}\r\n`,
        "latin1",
      ),
      body,
    ]);
  });
  return (events) => new HttpConnection(open, texts, events);
}

/** TLS has no name for an address. */
const sniOf = (host: string) => (isIP(host) === 0 ? host : "");

/**
 * A server that closed an idle connection just before a request came on it did not see the request, and closes at once.
 * One that closes later had it, and dropped it.
 */
const idleRaceMs = 20;

class HttpConnection implements Connection {
  readonly #open: () => Socket;
  readonly #texts: readonly Buffer[];
  readonly #events: ConnectionEvents;
  readonly #reader = new HttpAnswerReader();
  #socket: Socket | undefined;
  /** Of the request that waits for its answer; -1: none does. */
  #request = -1;
  /** It had an answer before: when it ends, the server may have closed it because it was idle. */
  #used = false;
  #sentMs = 0;

  constructor(open: () => Socket, texts: readonly Buffer[], events: ConnectionEvents) {
    this.#open = open;
    this.#texts = texts;
    this.#events = events;
  }

  send(request: number): void {
    this.#request = request;
    this.#sentMs = performance.now();
    this.#reader.reset();
    (this.#socket ?? this.#connect()).write(this.#texts[request]!);
  }

  abandon(code: string): void {
    this.close();
    this.#fail(code);
  }

  close(): void {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
  }

  #connect(): Socket {
    const socket = this.#open();
    this.#socket = socket;
    this.#used = false;
    let code = "UND_ERR_SOCKET";
    socket.on("data", (chunk) => {
      if (socket === this.#socket) this.#read(chunk);
    });
    socket.on("error", (error: NodeJS.ErrnoException) => {
      code = error.code ?? error.message;
    });
    socket.on("end", () => socket.destroy());
    socket.on("close", () => {
      if (socket !== this.#socket) return;
      this.#socket = undefined;
      if (this.#request < 0) return;
      const isEarly = performance.now() - this.#sentMs < idleRaceMs;
      // on a new connection: it is not sent a third time
      if (this.#used && isEarly && !this.#reader.begun) this.send(this.#request);
      else if (this.#reader.endsWithConnection) this.#answered();
      else this.#fail(code);
    });
    return socket;
  }

  #read(chunk: Buffer): void {
    // nothing was asked: what comes is a server's word before it closes
    if (this.#request < 0) return;
    const state = this.#reader.read(chunk);
    if (state === "more") return;
    if (state === "broken") {
      this.abandon("not HTTP");
      return;
    }
    if (!this.#reader.keepAlive) this.close();
    this.#used = true;
    this.#answered();
  }

  #answered(): void {
    this.#request = -1;
    const { status, bodyBytes } = this.#reader;
    this.#events.answered(status === 200 ? "" : String(status), bodyBytes);
  }

  #fail(code: string): void {
    if (this.#request < 0) return;
    this.#request = -1;
    this.#events.failed(code);
  }
}
