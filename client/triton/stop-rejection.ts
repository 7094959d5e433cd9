/**
 * Returns whether an error shows that a stopping server did not process the request: a rejection that names the reason, a refused
 * connection, or a refused HTTP/2 stream.
 *
 * @param error - Error code and message.
 */
export function isStopRejection(error: string): boolean {
  return (
    /connection refused|ECONNREFUSED|Stream refused by server/.test(error) ||
    (/\bstatus 503\b|\bHTTP 503\b|\bgRPC UNAVAILABLE\b/.test(error) &&
      /stopping|exiting/i.test(error))
  );
}
