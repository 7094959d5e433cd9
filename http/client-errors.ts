import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { embedResponseHeaders } from "../contract/embed-routes.ts";
import { EmbedError } from "./embed-error.ts";

/** Maximum time in which a client must send a request, in milliseconds. */
export const requestTimeoutMs = 120_000;

/** Maximum time in which a client must send the headers, in milliseconds. */
export const headersTimeoutMs = 15_000;

/** Time for which a connection stays open after a response to invalid HTTP, in milliseconds. */
const lingerMs = 1_000;

/**
 * Responds to a request that the HTTP parser rejected, before any route is reached.
 *
 * @param bodyOf - Body of the response. @default that of the embed API
 */
export function respondToClientError(
  cause: Error & { code?: string },
  socket: Socket,
  bodyOf: (error: EmbedError) => unknown = (error) => error.body,
): void {
  // as in Node's own handler: the response must not be written into one that is being sent
  const { _httpMessage: open } = socket as {
    readonly _httpMessage?: { readonly headersSent: boolean };
  };
  if (!socket.writable || cause.code === "ECONNRESET" || open?.headersSent === true) {
    socket.destroy();
    return;
  }
  const error = errorOf(cause);
  const { status } = error;
  const text = JSON.stringify(bodyOf(error));
  socket.setTimeout(lingerMs, () => socket.destroy());
  socket.end(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      "connection: close",
      "content-type: application/json",
      ...Object.entries(embedResponseHeaders).map(([name, value]) => `${name}: ${value}`),
      `content-length: ${Buffer.byteLength(text)}`,
      "",
      text,
    ].join("\r\n"),
  );
}

function errorOf({ code, message }: Error & { code?: string }): EmbedError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new EmbedError("headers_too_large", "the headers are larger than 16 KiB");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new EmbedError(
        "request_timeout",
        `the request must arrive within ${requestTimeoutMs / 1000} s, its headers within ${headersTimeoutMs / 1000} s`,
      );
    default:
      return new EmbedError("bad_request", `invalid HTTP: ${message}`);
  }
}
