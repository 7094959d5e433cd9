import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

/** An answer of a batch of 32 is 64 KiB; the default window of that size would make it wait for the client. */
const windowBytes = 8 * 1024 * 1024;

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
    const message = Buffer.alloc(5 + body.byteLength);
    message.writeUInt32BE(body.byteLength, 1);
    message.set(body, 5);
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
    const session = this.#session ?? this.#connect();
    const stream = session.request(headers);
    this.#stream = stream;
    let httpStatus = 200;
    let grpcStatus: string | undefined;
    let bytes = 0;
    let code = "UND_ERR_SOCKET";
    stream.on("response", (answer) => {
      httpStatus = answer[":status"] ?? 0;
      // an error comes without a message: its status is here
      grpcStatus = headerText(answer["grpc-status"]);
    });
    stream.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    stream.on("trailers", (trailers) => {
      grpcStatus ??= headerText(trailers["grpc-status"]);
    });
    stream.on("error", (error: NodeJS.ErrnoException) => {
      code = error.code ?? error.message;
    });
    // not `close`: it comes later, when the stream is torn down
    stream.on("end", () => {
      if (httpStatus !== 200 || grpcStatus !== undefined)
        this.#end(stream, { bytes, httpStatus, grpcStatus });
    });
    stream.on("close", () => {
      if (stream !== this.#stream) return;
      if (httpStatus !== 200 || grpcStatus !== undefined)
        this.#end(stream, { bytes, httpStatus, grpcStatus });
      else {
        this.#stream = undefined;
        // of a session that could not connect, the session knows why
        this.#events.failed(
          code === "ERR_HTTP2_STREAM_CANCEL" ? (this.#sessionCode ?? code) : code,
        );
      }
    });
    stream.end(message);
  }
  #sessionCode: string | undefined;

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

  #end(
    stream: ClientHttp2Stream,
    {
      bytes,
      httpStatus,
      grpcStatus,
    }: { bytes: number; httpStatus: number; grpcStatus: string | undefined },
  ): void {
    if (stream !== this.#stream) return;
    this.#stream = undefined;
    const name = statusNames[Number(grpcStatus ?? 2)] ?? "UNKNOWN";
    const code = httpStatus === 200 ? name : String(httpStatus);
    // what is counted is the message, without its frame
    this.#events.answered(code === "OK" ? "" : code, Math.max(0, bytes - 5));
  }

  #connect(): ClientHttp2Session {
    const session = connect(this.#url, {
      settings: { initialWindowSize: windowBytes, enablePush: false },
    });
    this.#session = session;
    this.#sessionCode = undefined;
    session.on("connect", () => session.setLocalWindowSize(windowBytes));
    session.on("error", (error: NodeJS.ErrnoException) => {
      if (session === this.#session) this.#sessionCode = error.code ?? error.message;
    });
    const forget = () => {
      if (session === this.#session) this.#session = undefined;
    };
    session.on("goaway", forget);
    session.on("close", forget);
    return session;
  }
}

function headerText(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
