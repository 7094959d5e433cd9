import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type OutgoingHttpHeaders,
  type SecureClientSessionOptions,
} from "node:http2";
import { isIP, type Socket } from "node:net";
import { checkServerIdentity } from "node:tls";

/** Certificates and keys in PEM format. */
export interface GrpcTls {
  /**
   * Trusted certificate authorities of the server's certificate.
   *
   * @default - those that Node trusts (`NODE_EXTRA_CA_CERTS`)
   */
  readonly ca?: Buffer | undefined;
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

export type ConnectionTls = GrpcTls & { readonly serverName: string };

/** Flow-control window; a response of a batch of 32 fills the default of 64 KiB. */
const windowBytes = 8 * 1024 * 1024;
const stepMs = 500;
/** Time without a received byte, while streams are open, after which the server is pinged. */
const pingAfterMs = 2_000;
/** Time without a received byte after which an unanswered ping, or an unfinished connect, ends the connection. */
const deadAfterMs = 5_000;
/** gRPC servers close a connection with more pings than this between two responses. */
const maxPings = 3;
const pingFrameBytes = 17;
/** Time after which a cancelled stream that is still not closed shows that the server accepts no more streams. */
const maxLingerMs = 1_000;

/**
 * HTTP/2 connection that is checked while streams are open. A connection whose server is silent and does not answer a ping is
 * destroyed, which ends its streams, because a network device may drop a connection without closing it.
 */
export class Http2Connection {
  readonly #session: ClientHttp2Session;
  #socket: Socket | undefined;
  #retired = false;
  #streams = 0;
  /** Cancelled streams that are not closed, with the time of the cancellation. */
  readonly #lingering = new Map<ClientHttp2Stream, number>();
  #checkedAt = performance.now();
  #bytesRead = 0;
  #silentMs = 0;
  /** Pings since the last other frame. */
  #pings = 0;
  #isPinging = false;

  /** @param address - `host:port` */
  constructor(address: string, tls?: ConnectionTls) {
    const session = connect(`${tls === undefined ? "http" : "https"}://${address}`, {
      settings: { initialWindowSize: windowBytes, enablePush: false },
      // calls with more than 10 MB of queued data fail by default
      maxSessionMemory: Number.MAX_SAFE_INTEGER,
      ...(tls && tlsOptions(tls)),
    });
    this.#session = session;
    const timer = setInterval(() => this.#check(), stepMs).unref();
    session.on("connect", (_session, socket) => {
      this.#socket = socket as Socket;
      session.setLocalWindowSize(windowBytes);
    });
    // reported by its streams
    session.on("error", () => {});
    session.on("goaway", () => this.retire());
    session.on("close", () => clearInterval(timer));
  }

  /** Whether the connection accepts further streams. */
  get usable(): boolean {
    return !this.#retired && !this.#session.closed && !this.#session.destroyed;
  }

  /** Opens a stream; {@link closed} must be called when it closes. */
  open(headers: OutgoingHttpHeaders): ClientHttp2Stream {
    this.#streams += 1;
    return this.#session.request(headers);
  }

  closed(stream: ClientHttp2Stream): void {
    this.#streams -= 1;
    this.#lingering.delete(stream);
  }

  /** The stream stays open until the server accepts it if the server's limit of concurrent streams is reached. */
  cancel(stream: ClientHttp2Stream): void {
    if (stream.destroyed) return;
    this.#lingering.set(stream, performance.now());
    stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Closes the connection once its streams have ended. */
  retire(): void {
    this.#retired = true;
    if (!this.#session.closed) this.#session.close();
  }

  destroy(error?: Error): void {
    this.#retired = true;
    this.#session.destroy(error);
  }

  #check(): void {
    const now = performance.now();
    // a step of a busy process counts once, because it may not have read what has arrived
    const elapsedMs = Math.min(now - this.#checkedAt, stepMs);
    this.#checkedAt = now;
    this.#checkLingering(now);
    const bytesRead = this.#socket?.bytesRead ?? 0;
    const isConnecting = this.#socket === undefined;
    const isIdle = this.#streams === 0 && !this.#isPinging && !isConnecting;
    if (bytesRead !== this.#bytesRead || isIdle) {
      if (bytesRead - this.#bytesRead > pingFrameBytes) this.#pings = 0;
      this.#bytesRead = bytesRead;
      this.#silentMs = 0;
      this.#isPinging = false;
      return;
    }
    this.#silentMs += elapsedMs;
    if (this.#isPinging || isConnecting) {
      if (this.#silentMs < deadAfterMs) return;
      const problem = isConnecting ? "not connected" : "no response to a ping";
      this.destroy(new Error(`${problem} within ${deadAfterMs} ms`));
    } else if (this.#pings < maxPings && this.#silentMs >= pingAfterMs * 2 ** this.#pings) {
      this.#pings += 1;
      this.#isPinging = true;
      this.#silentMs = pingAfterMs;
      this.#session.ping(() => {});
    }
  }

  #checkLingering(now: number): void {
    const [[, since] = []] = this.#lingering;
    if (since === undefined || now - since < maxLingerMs) return;
    if (this.#lingering.size === this.#streams) {
      this.destroy(new Error("the server accepts no more streams"));
    } else if (!this.#retired) this.retire();
  }
}

function tlsOptions({ ca, client, serverName }: ConnectionTls): SecureClientSessionOptions {
  return {
    ca,
    ...client,
    // the address is an IP address, but the certificate has the name of the target
    checkServerIdentity: (_host, certificate) => checkServerIdentity(serverName, certificate),
    ...(isIP(serverName) === 0 && { servername: serverName }),
  };
}
