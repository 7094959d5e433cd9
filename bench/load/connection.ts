/** What a connection tells of the request that it carries. Each request ends with one of the two. */
export interface ConnectionEvents {
  /** @param bytes - Of the answer's body; `code` is empty where it is a good one. */
  answered(code: string, bytes: number): void;
  /** No whole answer. `code` is the error's own, like `ECONNRESET`, or a few words. */
  failed(code: string): void;
}

/** One connection to a server, which carries one request at a time. It connects when it is first needed, and again. */
export interface Connection {
  /** Send the request with this number. Only when the one before has ended. */
  send(request: number): void;
  /** Drop the request that it carries, and the connection: {@link ConnectionEvents.failed} with this code. */
  abandon(code: string): void;
  /** Without an event. */
  close(): void;
}

/** Opens connections to one server, for requests that were written before. */
export type OpenConnection = (events: ConnectionEvents) => Connection;
