import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
  type OutgoingHttpHeaders,
} from "node:http2";
import { status } from "./grpc-status.ts";
import { type ConnectionTls, type GrpcTls, Http2Connection } from "./http2-connection.ts";

/** Source of a call's failure: status of the server, HTTP status of a proxy, connection or stream, or invalid response. */
export type CallErrorSource = "status" | "http" | "connection" | "response";

/** Call without a message as response. */
export class CallError extends Error {
  constructor(
    readonly code: number,
    readonly details: string,
    readonly source: CallErrorSource,
    options?: ErrorOptions,
  ) {
    super(details, options);
  }
}

export interface UnaryChannelOptions {
  /** `host:port`, or `https://host:port` for TLS; also the `:authority` header. */
  readonly target: string;
  /**
   * `ip:port`.
   *
   * @default - the target
   */
  readonly address?: string | undefined;
  /** @default - none, or that of `https` */
  readonly tls?: GrpcTls | undefined;
  /** Metadata of every call. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface UnaryCallOptions {
  /**
   * Sent to the server; this channel does not measure it.
   *
   * @default - no deadline
   */
  readonly timeoutMs?: number;
  /** Cancels the call. */
  readonly signal?: AbortSignal;
  /** Metadata of this call. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /**
   * Maximum size of the response; a larger one is not received.
   *
   * @default - none
   */
  readonly maxResponseBytes?: number | undefined;
}

/** Eight digits, the maximum of the header; 27 hours. */
const maxTimeoutMs = 99_999_999;
/** Message of grpc-js for a stream that the server did not process (RFC 9113, section 8.7). */
const refused = "Stream refused by server";
/** Length of the prefix of a gRPC message: 1 byte for compression, 4 bytes for the length of the message. */
const prefixBytes = 5;

/** Returns the host of `host:port`, without the brackets of an IPv6 address. */
export function hostOf(target: string): string {
  return target.slice(0, target.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}

/**
 * gRPC calls with one request and one response over one HTTP/2 connection, which is opened by the first call and after a failure.
 *
 * Unlike grpc-js, it sends messages in parts without copying them. grpc-js copies each message twice, and the garbage collection of
 * the copies takes more processor time than the call: 0.5 ms per image of 150 KB instead of 0.1.
 */
export class UnaryChannel {
  readonly #options: UnaryChannelOptions & {
    readonly address: string;
    readonly tls: ConnectionTls | undefined;
  };
  #connection: Http2Connection | undefined;
  #closed = false;

  constructor(options: UnaryChannelOptions) {
    const target = options.target.replace(/^https:\/\//, "");
    const { address = target, tls = target === options.target ? undefined : {} } = options;
    const serverName = tls?.serverName ?? hostOf(target);
    this.#options = { ...options, target, address, tls: tls && { ...tls, serverName } };
  }

  /**
   * @param path - `/package.Service/Method`
   * @param message - Parts of the encoded request. Their memory is not read after the call has ended, unless it was cancelled: then the server
   *   discards what is still sent of them.
   * @returns The encoded response.
   * @throws {CallError} `UNAVAILABLE` if the connection failed or the signal was aborted
   */
  async call(
    path: string,
    message: readonly Uint8Array[],
    options: UnaryCallOptions,
  ): Promise<Buffer> {
    try {
      return await this.#attempt(path, message, options);
    } catch (error) {
      // the server has not processed the call, which gRPC therefore repeats once; a stopping server refuses calls
      const isRefused = error instanceof CallError && error.details === refused;
      if (!isRefused || options.signal?.aborted) throw error;
      return await this.#attempt(path, message, options);
    }
  }

  #attempt(
    path: string,
    message: readonly Uint8Array[],
    { timeoutMs, signal, metadata, maxResponseBytes }: UnaryCallOptions,
  ): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        throw new CallError(status.UNAVAILABLE, "The client has been closed", "connection");
      }
      const connection = this.#open();
      const headers: OutgoingHttpHeaders = {
        ...this.#options.metadata,
        ...metadata,
        [constants.HTTP2_HEADER_METHOD]: "POST",
        [constants.HTTP2_HEADER_AUTHORITY]: this.#options.target,
        [constants.HTTP2_HEADER_PATH]: path,
        "content-type": "application/grpc",
        te: "trailers",
      };
      if (timeoutMs !== undefined) {
        headers["grpc-timeout"] = `${Math.min(Math.ceil(timeoutMs), maxTimeoutMs)}m`;
      }
      const stream = connection.open(headers);
      const onAbort = () => {
        connection.cancel(stream);
        // rejects here instead of when the stream closes, because a server that accepts no more
        // streams leaves it open
        reject(new CallError(status.UNAVAILABLE, "cancelled", "connection"));
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      receive(stream, maxResponseBytes, connection, (response) => {
        signal?.removeEventListener("abort", onAbort);
        if (response instanceof CallError) reject(response);
        else resolve(response);
      });
      send(stream, message);
      if (signal?.aborted) onAbort();
    });
  }

  /** Ends the connection once the outstanding calls have ended. The next call opens another one. */
  retire(): void {
    this.#connection?.retire();
  }

  /** Ends the connection and the outstanding calls. The next call opens another one. */
  disconnect(): void {
    this.#connection?.destroy();
  }

  /** Ends the connection once the outstanding calls have ended; further calls fail. */
  close(): void {
    this.#closed = true;
    this.retire();
  }

  #open(): Http2Connection {
    if (this.#connection?.usable !== true) {
      this.#connection = new Http2Connection(this.#options.address, this.#options.tls);
    }
    return this.#connection;
  }
}

function send(stream: ClientHttp2Stream, message: readonly Uint8Array[]): void {
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(
    message.reduce((sum, part) => sum + part.byteLength, 0),
    1,
  );
  stream.cork();
  stream.write(prefix);
  for (const part of message) if (part.byteLength > 0) stream.write(part);
  stream.end();
  stream.uncork();
}

/** @param onEnd - Called once the stream is closed: its writes have ended. */
function receive(
  stream: ClientHttp2Stream,
  maxBytes = Number.POSITIVE_INFINITY,
  connection: Http2Connection,
  onEnd: (response: Buffer | CallError) => void,
): void {
  let chunks: Buffer[] = [];
  let received = 0;
  let head: (IncomingHttpHeaders & IncomingHttpStatusHeader) | undefined;
  let trailers: IncomingHttpHeaders | undefined;
  let failure: Error | undefined;
  stream.on("response", (headers) => {
    head = headers;
  });
  stream.on("trailers", (headers) => {
    trailers = headers;
  });
  stream.on("data", (chunk: Buffer) => {
    received += chunk.length;
    if (received <= maxBytes + prefixBytes) chunks.push(chunk);
    else if (!stream.closed) {
      chunks = [];
      connection.cancel(stream);
    }
  });
  stream.on("error", (error: Error & { readonly code?: string }) => {
    failure = error;
    // another connection has streams
    if (error.code === "ERR_HTTP2_OUT_OF_STREAMS") connection.retire();
  });
  stream.on("close", () => {
    connection.closed(stream);
    // a response without a message has its status in the first headers
    const ended = trailers?.["grpc-status"] === undefined ? head : trailers;
    const code = ended?.["grpc-status"];
    if (received > maxBytes + prefixBytes) {
      onEnd(invalid(`the response has more than ${maxBytes} bytes`));
    } else if (code !== undefined && Number(code) !== status.OK) {
      onEnd(new CallError(Number(code), detailsOf(ended?.["grpc-message"]), "status"));
    } else if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM || isOutOfStreams(failure)) {
      onEnd(new CallError(status.UNAVAILABLE, refused, "connection", { cause: failure }));
    } else if (code === undefined) {
      onEnd(withoutStatus(head?.[":status"], failure));
    } else {
      onEnd(messageOf(chunks));
    }
  });
}

function isOutOfStreams(error: (Error & { readonly code?: string }) | undefined): boolean {
  return error?.code === "ERR_HTTP2_OUT_OF_STREAMS";
}

function messageOf(chunks: readonly Buffer[]): Buffer | CallError {
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  const isComplete =
    body.length >= prefixBytes &&
    body[0] === 0 &&
    body.length === prefixBytes + body.readUInt32BE(1);
  if (isComplete) return body.subarray(prefixBytes);
  return invalid("the response is not one uncompressed message");
}

function invalid(details: string): CallError {
  return new CallError(status.DATA_LOSS, details, "response");
}

/** Error of a call that ended without a gRPC status, because the connection or a proxy failed. An idempotent call can be repeated. */
function withoutStatus(httpStatus: number | undefined, failure: Error | undefined): CallError {
  if (httpStatus !== undefined && httpStatus !== constants.HTTP_STATUS_OK) {
    return new CallError(status.UNAVAILABLE, `HTTP status ${httpStatus}`, "http");
  }
  const { cause } = failure ?? {};
  const reason = cause instanceof Error ? cause : failure;
  // one error per address of a name; the aggregate has no message
  const text = reason instanceof AggregateError ? reason.errors[0]?.message : reason?.message;
  const details = `connection closed${text === undefined ? "" : `: ${text}`}`;
  return new CallError(status.UNAVAILABLE, details, "connection", { cause: reason });
}

/** Percent-decoded `grpc-message`. */
function detailsOf(value: string | string[] | undefined): string {
  const text = String(value ?? "");
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
