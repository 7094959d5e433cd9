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
  readonly timeoutMs?: number;
  /** Ends the request. */
  readonly signal?: AbortSignal;
}

/** HTTP with connections of its own, so that closing it leaves none open that would hold up a stopping server. */
export interface HttpClient {
  send(url: string, options?: HttpRequest): Promise<HttpResponse>;
  close(): Promise<void>;
}

const defaultTimeoutMs = 60_000;

/** A key for one server; no other gets it. */
export interface BearerKey {
  /** `http://host:port`. */
  readonly origin: string;
  readonly key: string;
}

export interface ConnectionOptions {
  /**
   * Close each connection after its answer, so that whoever spreads connections spreads requests.
   *
   * @default false - connections are used again
   */
  readonly closeAfterResponse?: boolean;
  /** TLS to the server. With it, `HTTPS_PROXY` and `NO_PROXY` count, as for kubectl. */
  readonly tls?: Pick<TlsOptions, "ca" | "cert" | "key" | "rejectUnauthorized" | "servername">;
  /** URL of the proxy, in place of the environment's. */
  readonly proxy?: string;
  /** Sent with each request. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** @param bearer - Sent along where a request has no `authorization` of its own. */
export function openHttpClient(
  connections = 64,
  bearer?: BearerKey,
  { closeAfterResponse = false, tls, proxy, headers: always }: ConnectionOptions = {},
): HttpClient {
  // 0 is undici's way to say `connection: close`
  const options = { connections, pipelining: closeAfterResponse ? 0 : 1 };
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
      const encoded = isForm ? new Response(body) : undefined;
      const answer = await request(url, {
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
        signal,
      });
      return {
        status: answer.statusCode,
        headers: answer.headers,
        body: Buffer.from(await answer.body.arrayBuffer()),
      };
    },
    close: () => dispatcher.close(),
  };
}

/** The answer's JSON; `undefined` where it is none. */
export function jsonOf(answer: Pick<HttpResponse, "body">): unknown {
  try {
    return JSON.parse(answer.body.toString("utf8"));
  } catch {
    return undefined;
  }
}

/** For messages: what went wrong with a request, in a few words. */
export function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause : error;
  const code = "code" in cause && typeof cause.code === "string" ? cause.code : undefined;
  const words: Readonly<Record<string, string>> = {
    ECONNREFUSED: "connection refused",
    ECONNRESET: "connection reset",
    ERR_HTTP2_STREAM_ERROR: "stream ended by the server",
    UND_ERR_SOCKET: "connection closed before the answer",
    UND_ERR_HEADERS_TIMEOUT: "no answer in time",
    UND_ERR_BODY_TIMEOUT: "no whole answer in time",
  };
  return words[code ?? ""] ?? error.message.split("\n")[0] ?? code ?? "failed";
}
