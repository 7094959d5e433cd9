import { Client, type Dispatcher, errors, Pool } from "undici";
import type { PreparedRequests } from "../requests/prepared-requests.ts";
import type { Channels } from "./channels.ts";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";

type Request = Dispatcher.DispatchOptions;

/** Returns the code of a complete response to the request with this index; empty on success. */
export type JudgeResponse = (
  request: number,
  response: {
    readonly status: number;
    /** Names and values alternate. */
    readonly headers: readonly Buffer[];
    readonly body: Buffer;
  },
) => string;

/**
 * HTTP/1.1 with one request at a time on each connection. The body of a response is counted, and kept only for `judge`.
 *
 * @param judge - Default: status 200 is a success.
 */
export function httpConnections(
  prepared: PreparedRequests,
  channels?: Channels,
  judge?: JudgeResponse,
): OpenConnection {
  const { path: socketPath, ...tls } = prepared.connect ?? {};
  const { origin } = new URL(prepared.url);
  const options: Client.Options = {
    connect: { ...tls, socketPath },
    // the sender has its own timeout; an idle connection stays open
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 600_000,
  };
  const requests = prepared.requests.map(
    ({ headers, body }): Request => ({
      path: prepared.path,
      method: prepared.method ?? "POST",
      headers: { ...prepared.headers, ...headers },
      body: body.byteLength === 0 ? null : Buffer.from(body),
      // the server and undici close the connection after the response
      reset: channels === "new",
    }),
  );
  if (typeof channels !== "number") {
    return (events) =>
      new HttpConnection(() => new Client(origin, options), requests, events, judge);
  }
  const pool = new Pool(origin, { ...options, connections: channels, pipelining: 1 });
  return (events) => new HttpConnection(() => pool, requests, events, judge, "shared");
}

/**
 * A server that closed an idle connection just before a request arrived did not read the request; its close arrives within
 * this time. A later close means that it dropped the request.
 */
const idleRaceMs = 20;

class HttpConnection implements Connection {
  #client: Client | Pool | undefined;
  #abort: (() => void) | undefined;
  /** Number of the current request; events of an aborted one are ignored. */
  #current = 0;
  #busy = false;
  /** Whether the connection had a response before, so that the server may close it as idle. */
  #used = false;

  constructor(
    private readonly open: () => Client | Pool,
    private readonly requests: readonly Request[],
    private readonly events: ConnectionEvents,
    private readonly judge: JudgeResponse | undefined,
    /** `shared`: other clients use the same pool, so that aborting a request must not close its connections. */
    private readonly use: "own" | "shared" = "own",
  ) {}

  send(request: number): void {
    this.#busy = true;
    const number = ++this.#current;
    const sentMs = performance.now();
    const wasUsed = this.#used;
    let [status, bytes] = [0, 0];
    let headers: readonly Buffer[] = [];
    const chunks: Buffer[] = [];
    const end = (emit: () => void) => {
      if (number !== this.#current || !this.#busy) return;
      this.#busy = false;
      emit();
    };
    (this.#client ?? this.#connect()).dispatch(this.requests[request]!, {
      onConnect: (abort) => {
        // aborted while it waited for a connection of the pool
        if (number !== this.#current || !this.#busy) abort();
        else this.#abort = () => abort();
      },
      onHeaders: (code, names) => {
        status = code;
        headers = names;
        return true;
      },
      onData: (chunk) => {
        bytes += chunk.length;
        if (this.judge !== undefined) chunks.push(chunk);
        return true;
      },
      onComplete: () =>
        end(() => {
          this.#used = true;
          const code =
            this.judge?.(request, { status, headers, body: Buffer.concat(chunks) }) ??
            (status === 200 ? "" : String(status));
          this.events.onAnswer(code, bytes);
        }),
      onError: (error) =>
        end(() => {
          const isEarly = performance.now() - sentMs < idleRaceMs;
          // retried on a new connection, once
          if (wasUsed && isEarly && status === 0) this.#retry(request);
          else this.events.onFailure(codeOf(error));
        }),
    });
  }

  abandon(code: string): void {
    const wasBusy = this.#busy;
    if (this.use === "own") this.close();
    else this.#stop();
    if (wasBusy) this.events.onFailure(code);
  }

  close(): void {
    this.#busy = false;
    if (this.#client?.destroyed === false) void this.#client.destroy();
    this.#client = undefined;
  }

  /** Aborts the current request only. */
  #stop(): void {
    this.#busy = false;
    this.#abort?.();
    this.#abort = undefined;
  }

  #connect(): Client | Pool {
    this.#used = false;
    this.#client = this.open();
    return this.#client;
  }

  #retry(request: number): void {
    // a pool replaces the closed connection
    if (this.use === "own") this.close();
    this.#used = false;
    this.send(request);
  }
}

function codeOf(error: Error & { readonly code?: string }): string {
  return error instanceof errors.HTTPParserError ? "not HTTP" : (error.code ?? error.message);
}
