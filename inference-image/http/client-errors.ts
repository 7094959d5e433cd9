import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { EmbedError } from "./embed-error.ts";
import { requestTimeoutMs } from "./request-timeout.ts";

/** How long a connection that was answered here stays open for its client to read that, in milliseconds. */
const lingerMs = 1_000;

/**
 * Answer what the HTTP parser refuses: no route is ever asked.
 *
 * @param bodyOf - The answer's body, where that is not the embed API's.
 */
export function respondToClientError(
  error: Error & { code?: string },
  socket: Socket,
  bodyOf: (refusal: EmbedError) => unknown = (refusal) => refusal.body,
): void {
  // as Node's own handler: an answer here must not get into one that is on its way
  const { _httpMessage: open } = socket as {
    readonly _httpMessage?: { readonly headersSent: boolean };
  };
  if (!socket.writable || error.code === "ECONNRESET" || open?.headersSent === true) {
    socket.destroy();
    return;
  }
  const refusal = errorOf(error);
  const { status } = refusal;
  const text = JSON.stringify(bodyOf(refusal));
  socket.setTimeout(lingerMs, () => socket.destroy());
  socket.end(
    [
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
      "connection: close",
      "content-type: application/json",
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
        `the request did not arrive in time: ${requestTimeoutMs / 1000} s, of which its headers have ${headersTimeoutMs / 1000} s`,
      );
    default:
      return new EmbedError("bad_request", `this is not HTTP: ${message}`);
  }
}

/** How long a client may take to send the headers, in milliseconds. */
export const headersTimeoutMs = 15_000;
