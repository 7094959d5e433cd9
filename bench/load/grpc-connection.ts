import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

/** An answer of a batch of 32 is 64 KiB; the default window of that size would make it wait for the client. */
const windowBytes = 8 * 1024 * 1024;

const statusOk = 200;
/** Before each message: a flag, and its length. */
const frameBytes = 5;
/** An answer that says that all is well, and is not one whole message. */
const cutShort = "answer cut short";

/** Names of the codes of gRPC, by number. */
const statusNames = [
  "OK",
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
] as const;

/** gRPC over HTTP/2, with messages that were framed before the clock started. An answer is counted, not decoded. */
export function grpcConnections(prepared: PreparedRequests): OpenConnection {
  const url = `http://${prepared.url}`;
  const calls = prepared.requests.map(({ headers, body }) => {
    const message = Buffer.alloc(frameBytes + body.byteLength);
    message.writeUInt32BE(body.byteLength, 1);
    message.set(body, frameBytes);
    return {
      headers: {
        [constants.HTTP2_HEADER_METHOD]: "POST",
        [constants.HTTP2_HEADER_PATH]: prepared.path,
        "content-type": "application/grpc",
        te: "trailers",
        ...prepared.headers,
        ...headers,
      },
      message,
    };
  });
  return (events) => new GrpcConnection(url, calls, events);
}

interface Call {
  readonly headers: Readonly<Record<string, string>>;
  readonly message: Buffer;
}

class GrpcConnection implements Connection {
  readonly #url: string;
  readonly #calls: readonly Call[];
  readonly #events: ConnectionEvents;
  #session: ClientHttp2Session | undefined;
  #stream: ClientHttp2Stream | undefined;

  constructor(url: string, calls: readonly Call[], events: ConnectionEvents) {
    this.#url = url;
    this.#calls = calls;
    this.#events = events;
  }

  send(request: number): void {
    const { headers, message } = this.#calls[request]!;
    const stream = this.#openSession().request(headers);
    this.#stream = stream;
    const answer: Answer = {
      httpStatus: 0,
      grpcStatus: undefined,
      bytes: 0,
      head: Buffer.alloc(0),
    };
    let code = "UND_ERR_SOCKET";
    stream.on("response", (response) => {
      answer.httpStatus = response[":status"] ?? 0;
      // an error comes without a message: its status is here
      answer.grpcStatus = textOf(response["grpc-status"]);
    });
    stream.on("data", (chunk: Buffer) => {
      answer.bytes += chunk.length;
      const missing = frameBytes - answer.head.length;
      if (missing > 0) answer.head = Buffer.concat([answer.head, chunk.subarray(0, missing)]);
    });
    stream.on("trailers", (trailers) => {
      answer.grpcStatus ??= textOf(trailers["grpc-status"]);
    });
    stream.on("error", (error) => {
      code = codeOf(error);
    });
    const end = (isClosed: boolean) => {
      if (stream !== this.#stream) return;
      const isWhole =
        answer.grpcStatus !== undefined ||
        (answer.httpStatus !== 0 && answer.httpStatus !== statusOk);
      if (!isWhole && !isClosed) return;
      this.#stream = undefined;
      if (isWhole)
        this.#events.answered(answerCode(answer), Math.max(0, answer.bytes - frameBytes));
      else this.#events.failed(code);
    };
    // the end of the answer; the stream is torn down some time later
    stream.on("end", () => end(false));
    stream.on("close", () => end(true));
    stream.end(message);
  }

  abandon(code: string): void {
    const open = this.#stream !== undefined;
    this.close();
    if (open) this.#events.failed(code);
  }

  close(): void {
    this.#stream = undefined;
    this.#session?.destroy();
    this.#session = undefined;
  }

  #openSession(): ClientHttp2Session {
    const open = this.#session;
    if (open !== undefined && !open.closed && !open.destroyed) return open;
    const session = connect(this.#url, {
      settings: { initialWindowSize: windowBytes, enablePush: false },
    });
    this.#session = session;
    session.on("connect", () => session.setLocalWindowSize(windowBytes));
    // its streams tell
    session.on("error", () => {});
    session.on("goaway", () => {
      if (session === this.#session) this.#session = undefined;
    });
    return session;
  }
}

interface Answer {
  httpStatus: number;
  grpcStatus: string | undefined;
  /** Of the message with its frame. */
  bytes: number;
  /** Its frame: a flag, and how long the message is. */
  head: Buffer;
}

/** Empty for a good one. */
function answerCode({ httpStatus, grpcStatus, bytes, head }: Answer): string {
  if (httpStatus !== statusOk) return String(httpStatus);
  const name = statusNames[Number(grpcStatus)] ?? "UNKNOWN";
  if (name !== "OK") return name;
  const isWhole = head.length === frameBytes && bytes === frameBytes + head.readUInt32BE(1);
  return isWhole ? "" : cutShort;
}

/** Of a stream that was given up because its connection could not be had, what was wrong with the connection. */
function codeOf(error: Error & { readonly code?: unknown }): string {
  const known = (one: unknown): string | undefined =>
    one instanceof Error && "code" in one && typeof one.code === "string" ? one.code : undefined;
  return known(error.cause) ?? known(error) ?? error.message;
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
