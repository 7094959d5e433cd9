/** Outcome of a request; each request ends with one of the two events. */
export interface ConnectionEvents {
  /** Complete response. `code` is empty on success; `bytes` is the size of the body. */
  onAnswer(code: string, bytes: number): void;
  /**
   * Called if no complete response arrived.
   *
   * @param code - Code of the error, such as `ECONNRESET`, or a short description.
   */
  onFailure(code: string): void;
}

/** Connection for one request at a time. It connects on first use, and reconnects. */
export interface Connection {
  /** Sends the request with this index, after the previous one has ended. */
  send(request: number): void;
  /** Aborts the current request and the connection; emits {@link ConnectionEvents.onFailure} with this code. */
  abandon(code: string): void;
  /** Closes the connection without an event. */
  close(): void;
}

/** Opens connections to one server, for prepared requests. */
export type OpenConnection = (events: ConnectionEvents) => Connection;
