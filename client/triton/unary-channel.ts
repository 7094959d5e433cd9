import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
  type SecureClientSessionOptions,
} from "node:http2";
import { isIP } from "node:net";
import { checkServerIdentity } from "node:tls";
import { status } from "@grpc/grpc-js";

/** Certificates and keys in PEM format. */
export interface GrpcTls {
  /** Trusted certificate authorities of the server's certificate. */
  readonly ca: Buffer;
  /**
   * Certificate chain and key of this client.
   *
   * @default - no client certificate
   */
  readonly client?: { readonly cert: Buffer; readonly key: Buffer } | undefined;
  /**
   * Required name in the server's certificate.
   *
   * @default - the host of the target
   */
  readonly serverName?: string | undefined;
}

/** Call without a message as response. Has the fields of grpc-js's `ServiceError` that a transport reads. */
export class CallError extends Error {
  constructor(
    readonly code: status,
    readonly details: string,
    options?: ErrorOptions,
  ) {
    super(details, options);
  }
}

export interface UnaryChannelOptions {
  /** `host:port`, for the `:authority` header. */
  readonly target: string;
  /** `ip:port`, or the target. */
  readonly address: string;
  readonly tls?: (GrpcTls & { readonly serverName: string }) | undefined;
  /** Metadata of every call. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface UnaryCallOptions {
  /** Sent to the server; this channel does not measure it. */
  readonly timeoutMs: number;
  /** Cancels the call. */
  readonly signal: AbortSignal;
}

/** Flow-control window; a response of a batch of 32 fills the default of 64 KiB. */
const windowBytes = 8 * 1024 * 1024;
/** Eight digits, the maximum of the header; 27 hours. */
const maxTimeoutMs = 99_999_999;
/** Message of grpc-js for a stream that the server did not process (RFC 9113, section 8.7). */
const refused = "Stream refused by server";
/** Bytes before a message: whether it is compressed, and its length. */
const prefixBytes = 5;

/**
 * gRPC calls with one request and one response over one HTTP/2 connection, which is opened by the first call and after a failure.
 *
 * Unlike grpc-js, it sends messages in parts without copying them. grpc-js copies each message twice, and the garbage collection of
 * the copies takes more processor time than the call: 0.5 ms per image of 150 KB instead of 0.1.
 */
export class UnaryChannel {
  readonly #options: UnaryChannelOptions;
  #session: ClientHttp2Session | undefined;
  #closed = false;

  constructor(options: UnaryChannelOptions) {
    this.#options = options;
  }

  /**
   * @param path - `/package.Service/Method`
   * @param message - Parts of the encoded request. Their memory is not read after the call has ended, unless it was cancelled: then the server
   *   discards what is still sent of them.
   * @returns The encoded response.
   * @throws {CallError} `UNAVAILABLE` if the connection failed
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
      if (!isRefused || options.signal.aborted) throw error;
      return await this.#attempt(path, message, options);
    }
  }

  #attempt(
    path: string,
    message: readonly Uint8Array[],
    { timeoutMs, signal }: UnaryCallOptions,
  ): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      if (this.#closed) throw new CallError(status.UNAVAILABLE, "The client has been closed");
      const session = this.#open();
      const stream = session.request({
        ...this.#options.metadata,
        [constants.HTTP2_HEADER_METHOD]: "POST",
        [constants.HTTP2_HEADER_AUTHORITY]: this.#options.target,
        [constants.HTTP2_HEADER_PATH]: path,
        "content-type": "application/grpc",
        te: "trailers",
        "grpc-timeout": `${Math.min(Math.ceil(timeoutMs), maxTimeoutMs)}m`,
      });
      const onAbort = () => stream.close(constants.NGHTTP2_CANCEL);
      signal.addEventListener("abort", onAbort, { once: true });
      receive(stream, (response) => {
        signal.removeEventListener("abort", onAbort);
        if (response instanceof CallError) reject(response);
        else resolve(response);
      });
      send(stream, message);
      if (signal.aborted) onAbort();
    });
  }

  /** Ends the connection once the outstanding calls have ended. */
  close(): void {
    this.#closed = true;
    this.#session?.close();
  }

  #open(): ClientHttp2Session {
    const open = this.#session;
    if (open !== undefined && !open.closed && !open.destroyed) return open;
    const { address, tls } = this.#options;
    const session = connect(`${tls === undefined ? "http" : "https"}://${address}`, {
      settings: { initialWindowSize: windowBytes, enablePush: false },
      // calls with more than 10 MB of queued data fail by default
      maxSessionMemory: Number.MAX_SAFE_INTEGER,
      ...(tls && tlsOptions(tls)),
    });
    this.#session = session;
    session.on("connect", () => session.setLocalWindowSize(windowBytes));
    // reported by its streams
    session.on("error", () => {});
    session.on("goaway", () => {
      if (this.#session === session) this.#session = undefined;
    });
    return session;
  }
}

function tlsOptions({ ca, client, serverName }: NonNullable<UnaryChannelOptions["tls"]>) {
  const options: SecureClientSessionOptions = {
    ca,
    ...client,
    // the address is an IP address, but the certificate has the name of the target
    checkServerIdentity: (_host, certificate) => checkServerIdentity(serverName, certificate),
    ...(isIP(serverName) === 0 && { servername: serverName }),
  };
  return options;
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
function receive(stream: ClientHttp2Stream, onEnd: (response: Buffer | CallError) => void): void {
  const chunks: Buffer[] = [];
  let head: (IncomingHttpHeaders & IncomingHttpStatusHeader) | undefined;
  let trailers: IncomingHttpHeaders | undefined;
  let failure: Error | undefined;
  stream.on("response", (headers) => {
    head = headers;
  });
  stream.on("trailers", (headers) => {
    trailers = headers;
  });
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("error", (error) => {
    failure = error;
  });
  stream.on("close", () => {
    // a response without a message has its status in the first headers
    const ended = trailers?.["grpc-status"] === undefined ? head : trailers;
    const code = ended?.["grpc-status"];
    if (code !== undefined && Number(code) !== status.OK) {
      onEnd(new CallError(Number(code), detailsOf(ended?.["grpc-message"])));
    } else if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM) {
      onEnd(new CallError(status.UNAVAILABLE, refused, { cause: failure }));
    } else if (code === undefined) {
      onEnd(withoutStatus(head?.[":status"], failure));
    } else {
      onEnd(messageOf(chunks));
    }
  });
}

function messageOf(chunks: readonly Buffer[]): Buffer | CallError {
  const body = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
  const isComplete =
    body.length >= prefixBytes &&
    body[0] === 0 &&
    body.length === prefixBytes + body.readUInt32BE(1);
  if (isComplete) return body.subarray(prefixBytes);
  return new CallError(status.DATA_LOSS, "the response is not one uncompressed message");
}

/** Connection or proxy that failed; idempotent calls can be repeated. */
function withoutStatus(httpStatus: number | undefined, failure: Error | undefined): CallError {
  const { cause } = failure ?? {};
  const reason = cause instanceof Error ? cause.message : failure?.message;
  const details =
    httpStatus === undefined || httpStatus === constants.HTTP_STATUS_OK
      ? `connection closed${reason === undefined ? "" : `: ${reason}`}`
      : `HTTP status ${httpStatus}`;
  return new CallError(status.UNAVAILABLE, details, { cause: failure });
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
