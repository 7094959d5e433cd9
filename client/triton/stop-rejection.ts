/**
 * Returns whether an error says that a stopping server did not accept the request: it said so, it refused the connection, or it
 * refused the HTTP/2 stream, which guarantees that nothing was processed.
 *
 * @param error - Error code and message.
 */
export function isStopRejection(error: string): boolean {
  return (
    /connection refused|ECONNREFUSED|No connection established|Stream refused by server/.test(
      error,
    ) ||
    (/\bstatus 503\b|\bHTTP 503\b|\bgRPC UNAVAILABLE\b/.test(error) &&
      /stopping|exiting/i.test(error))
  );
}
