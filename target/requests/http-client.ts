import type { IncomingHttpHeaders } from "node:http";
import type { ConnectionOptions as TlsOptions } from "node:tls";
import { Agent, EnvHttpProxyAgent, request } from "undici";

export interface HttpResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface HttpRequest {
  readonly method?: "GET" | "POST" | "PATCH" | "PUT" | "DELETE";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string | FormData;
  /** Until the end of the response. */
  readonly timeoutMs?: number;
  /** Aborts the request. */
  readonly signal?: AbortSignal;
}

/** HTTP client with its own connection pool, so that closing it leaves no connection that delays a server's shutdown. */
export interface HttpClient {
  send(url: string, options?: HttpRequest): Promise<HttpResponse>;
  close(): Promise<void>;
}

const defaultTimeoutMs = 60_000;

/** Longer than the response of any API; the body is kept in memory. */
const maxResponseBytes = 128 * 2 ** 20;

/** API key for one server. */
export interface BearerKey {
  /** `http://host:port`. */
  readonly origin: string;
  readonly key: string;
}

export interface ConnectionOptions {
  /**
   * Closes each connection after its response, so that a load balancer for connections distributes requests.
   *
   * @default false - connections are reused
   */
  readonly closeAfterResponse?: boolean;
  /** TLS options. If set, `HTTPS_PROXY` and `NO_PROXY` apply, as for kubectl. */
  readonly tls?: Pick<TlsOptions, "ca" | "cert" | "key" | "rejectUnauthorized" | "servername">;
  /** Proxy URL; overrides the environment variables. */
  readonly proxy?: string;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** @param bearer - Used for requests without an `authorization` header. */
export function openHttpClient(
  connections = 64,
  bearer?: BearerKey,
  { closeAfterResponse = false, tls, proxy, headers: always }: ConnectionOptions = {},
): HttpClient {
  // with 0, undici sends `connection: close`
  const options = {
    connections,
    pipelining: closeAfterResponse ? 0 : 1,
    maxResponseSize: maxResponseBytes,
  };
  const dispatcher =
    tls === undefined
      ? new Agent(options)
      : new EnvHttpProxyAgent({
          ...options,
          connect: tls,
          requestTls: tls,
          ...(proxy !== undefined && { httpProxy: proxy, httpsProxy: proxy }),
        });
  const authorization = (url: string): Readonly<Record<string, string>> =>
    bearer !== undefined && new URL(url).origin === new URL(bearer.origin).origin
      ? { authorization: `Bearer ${bearer.key}` }
      : {};
  return {
    async send(url, { method, headers, body, timeoutMs = defaultTimeoutMs, signal } = {}) {
      const isForm = body instanceof FormData;
      const deadline = AbortSignal.timeout(timeoutMs);
      const encoded = isForm ? new Response(body) : undefined;
      const response = await request(url, {
        dispatcher,
        method: method ?? (body === undefined ? "GET" : "POST"),
        headers: {
          ...authorization(url),
          ...always,
          ...headers,
          ...(encoded === undefined
            ? {}
            : { "content-type": encoded.headers.get("content-type") ?? "" }),
        },
        body:
          encoded === undefined
            ? (body as Uint8Array | string | undefined)
            : Buffer.from(await encoded.arrayBuffer()),
        headersTimeout: timeoutMs,
        bodyTimeout: timeoutMs,
        signal: signal === undefined ? deadline : AbortSignal.any([signal, deadline]),
      });
      return {
        status: response.statusCode,
        headers: response.headers,
        body: Buffer.from(await response.body.arrayBuffer()),
      };
    },
    close: () => dispatcher.close(),
  };
}

/** Parsed JSON of a response; `undefined` if it is invalid. */
export function jsonOf(response: Pick<HttpResponse, "body">): unknown {
  try {
    return JSON.parse(response.body.toString("utf8"));
  } catch {
    return undefined;
  }
}

/** Short description of a request error for messages. */
export function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause : error;
  const code = "code" in cause && typeof cause.code === "string" ? cause.code : undefined;
  if (cause.name === "TimeoutError") return "no response in time";
  const untrusted = "no trusted authority signed the certificate (NODE_EXTRA_CA_CERTS adds one)";
  const words: Readonly<Record<string, string>> = {
    DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
    SELF_SIGNED_CERT_IN_CHAIN: untrusted,
    UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
    UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
    ECONNREFUSED: "connection refused",
    ECONNRESET: "connection reset",
    ERR_SSL_WRONG_VERSION_NUMBER: "the server does not speak TLS",
    ERR_HTTP2_STREAM_ERROR: "stream ended by the server",
    UND_ERR_SOCKET: "connection closed before the response",
    UND_ERR_HEADERS_TIMEOUT: "no response in time",
    UND_ERR_BODY_TIMEOUT: "incomplete response",
    UND_ERR_RES_EXCEEDED_MAX_SIZE: `response larger than ${maxResponseBytes / 2 ** 20} MiB`,
  };
  return words[code ?? ""] ?? error.message.split("\n")[0] ?? code ?? "failed";
}
