import { Client, type Dispatcher, errors } from "undici";
import type { Connection, ConnectionEvents, OpenConnection } from "./connection.ts";
import type { PreparedRequests } from "./prepared-requests.ts";

type Request = Dispatcher.DispatchOptions;

/** HTTP/1.1 with one request at a time on each connection. The body of a response is counted, not kept. */
export function httpConnections(prepared: PreparedRequests): OpenConnection {
  const { path: socketPath, ...tls } = prepared.connect ?? {};
  const open = () =>
    new Client(new URL(prepared.url).origin, {
      connect: { ...tls, socketPath },
      // the sender has its own timeout; an idle connection stays open
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: 600_000,
    });
  const requests = prepared.requests.map(
    ({ headers, body }): Request => ({
      path: prepared.path,
      method: prepared.method ?? "POST",
      headers: { ...prepared.headers, ...headers },
      body: body.byteLength === 0 ? null : Buffer.from(body),
    }),
  );
  return (events) => new HttpConnection(open, requests, events);
}

/**
 * A server that closed an idle connection just before a request came on it did not see the request, and closes at once.
 * One that closes later had it, and dropped it.
 */
const idleRaceMs = 20;

class HttpConnection implements Connection {
  #client: Client | undefined;
  /** Number of the latest request: events of one that was abandoned are ignored. */
  #turn = 0;
  #busy = false;
  /** The connection had a response before: when it ends, the server may have closed it because it was idle. */
  #used = false;

  constructor(
    private readonly open: () => Client,
    private readonly requests: readonly Request[],
    private readonly events: ConnectionEvents,
  ) {}

  send(request: number): void {
    this.#busy = true;
    const turn = ++this.#turn;
    const sentMs = performance.now();
    const wasUsed = this.#used;
    let [status, bytes] = [0, 0];
    const end = (tell: () => void) => {
      if (turn !== this.#turn || !this.#busy) return;
      this.#busy = false;
      tell();
    };
    (this.#client ?? this.#connect()).dispatch(this.requests[request]!, {
      onConnect: () => {},
      onHeaders: (code) => {
        status = code;
        return true;
      },
      onData: (chunk) => {
        bytes += chunk.length;
        return true;
      },
      onComplete: () =>
        end(() => {
          this.#used = true;
          this.events.answered(status === 200 ? "" : String(status), bytes);
        }),
      onError: (error) =>
        end(() => {
          const isEarly = performance.now() - sentMs < idleRaceMs;
          // on a new connection: it is not sent a third time
          if (wasUsed && isEarly && status === 0) this.#again(request);
          else this.events.failed(codeOf(error));
        }),
    });
  }

  abandon(code: string): void {
    const wasBusy = this.#busy;
    this.close();
    if (wasBusy) this.events.failed(code);
  }

  close(): void {
    this.#busy = false;
    void this.#client?.destroy();
    this.#client = undefined;
  }

  #connect(): Client {
    this.#used = false;
    this.#client = this.open();
    return this.#client;
  }

  #again(request: number): void {
    this.close();
    this.send(request);
  }
}

function codeOf(error: Error & { readonly code?: string }): string {
  return error instanceof errors.HTTPParserError ? "not HTTP" : (error.code ?? error.message);
}
