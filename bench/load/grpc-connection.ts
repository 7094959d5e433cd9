import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from "node:http2";
import type { Channels } from "./channels.ts";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

/** Flow-control window; a response of a batch of 32 fills the default of 64 KiB. */
const windowBytes = 8 * 1024 * 1024;

const statusOk = 200;
/** Prefix of each message: a flag and the length. */
const frameBytes = 5;
/** Code of a response with status OK but an incomplete message. */
const truncated = "response truncated";

/** Names of gRPC status codes, by number. */
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

/** gRPC over HTTP/2 with prepared messages. Response bytes are counted, not decoded. */
export function grpcConnections(prepared: PreparedRequests, channels?: Channels): OpenConnection {
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
  const isShared = channels === "shared" || typeof channels === "number";
  if (!isShared) {
    const use = channels === "new" ? "once" : "own";
    return (events) => new GrpcConnection(new Channel(url), use, calls, events);
  }
  const count = channels === "shared" ? 1 : channels;
  const shared = Array.from({ length: count }, () => new Channel(url));
  let opened = 0;
  return (events) => new GrpcConnection(shared[opened++ % count]!, "shared", calls, events);
}

/** gRPC channel: one HTTP/2 connection, opened at the first call and after it was closed. */
class Channel {
  #session: ClientHttp2Session | undefined;

  constructor(private readonly url: string) {}

  open(): ClientHttp2Session {
    const open = this.#session;
    if (open !== undefined && !open.closed && !open.destroyed) return open;
    const session = connect(this.url, {
      settings: { initialWindowSize: windowBytes, enablePush: false },
      // calls with more than 10 MB of queued data fail by default
      maxSessionMemory: Number.MAX_SAFE_INTEGER,
    });
    this.#session = session;
    session.on("connect", () => session.setLocalWindowSize(windowBytes));
    // reported by its streams
    session.on("error", () => {});
    session.on("goaway", () => {
      if (session === this.#session) this.#session = undefined;
    });
    return session;
  }

  /** Closes the connection once its calls have ended. The next call opens another one. */
  retire(): void {
    this.#session?.close();
    this.#session = undefined;
  }

  destroy(): void {
    this.#session?.destroy();
    this.#session = undefined;
  }
}

interface Call {
  readonly headers: Readonly<Record<string, string>>;
  readonly message: Buffer;
}

/** Use of a channel: `own` by one client, `once` for one call each, `shared` by several clients. */
type ChannelUse = "own" | "once" | "shared";

class GrpcConnection implements Connection {
  #stream: ClientHttp2Stream | undefined;

  constructor(
    private readonly channel: Channel,
    private readonly use: ChannelUse,
    private readonly calls: readonly Call[],
    private readonly events: ConnectionEvents,
  ) {}

  send(request: number): void {
    const { headers, message } = this.calls[request]!;
    const stream = this.channel.open().request(headers);
    this.#stream = stream;
    const response: Response = {
      httpStatus: 0,
      grpcStatus: undefined,
      bytes: 0,
      head: Buffer.alloc(0),
    };
    let code = "UND_ERR_SOCKET";
    stream.on("response", (headers) => {
      response.httpStatus = headers[":status"] ?? 0;
      // a trailers-only response has its status here
      response.grpcStatus = textOf(headers["grpc-status"]);
    });
    stream.on("data", (chunk: Buffer) => {
      response.bytes += chunk.length;
      const missing = frameBytes - response.head.length;
      if (missing > 0) response.head = Buffer.concat([response.head, chunk.subarray(0, missing)]);
    });
    stream.on("trailers", (trailers) => {
      response.grpcStatus ??= textOf(trailers["grpc-status"]);
    });
    stream.on("error", (error) => {
      code = codeOf(error);
    });
    const end = (isClosed: boolean) => {
      if (stream !== this.#stream) return;
      const isComplete =
        response.grpcStatus !== undefined ||
        (response.httpStatus !== 0 && response.httpStatus !== statusOk);
      if (!isComplete && !isClosed) return;
      this.#stream = undefined;
      if (this.use === "once") this.channel.retire();
      if (isComplete)
        this.events.answered(responseCode(response), Math.max(0, response.bytes - frameBytes));
      else this.events.failed(code);
    };
    // the response is complete; the stream closes later
    stream.on("end", () => end(false));
    stream.on("close", () => end(true));
    stream.end(message);
  }

  abandon(code: string): void {
    const stream = this.#stream;
    this.#stream = undefined;
    // the calls of other clients continue
    if (this.use === "shared") stream?.close(constants.NGHTTP2_CANCEL);
    else this.channel.destroy();
    if (stream !== undefined) this.events.failed(code);
  }

  close(): void {
    this.#stream = undefined;
    this.channel.destroy();
  }
}

interface Response {
  httpStatus: number;
  grpcStatus: string | undefined;
  /** Size of the message with its prefix. */
  bytes: number;
  /** Prefix: a flag and the length of the message. */
  head: Buffer;
}

/** Empty on success. */
function responseCode({ httpStatus, grpcStatus, bytes, head }: Response): string {
  if (httpStatus !== statusOk) return String(httpStatus);
  const name = statusNames[Number(grpcStatus)] ?? "UNKNOWN";
  if (name !== "OK") return name;
  const isComplete = head.length === frameBytes && bytes === frameBytes + head.readUInt32BE(1);
  return isComplete ? "" : truncated;
}

/** Code of the connection error if the connection failed, otherwise of the stream error. */
function codeOf(error: Error & { readonly code?: unknown }): string {
  const codeIn = (value: unknown): string | undefined =>
    value instanceof Error && "code" in value && typeof value.code === "string"
      ? value.code
      : undefined;
  return codeIn(error.cause) ?? codeIn(error) ?? error.message;
}

function textOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value;
}
