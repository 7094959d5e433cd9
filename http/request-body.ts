import type { IncomingMessage } from "node:http";
import { finished } from "node:stream/promises";
import { maxJsonBytes } from "../client/triton/parse-json.ts";
import { EmbedError } from "./embed-error.ts";

export interface ReadBodyOptions {
  readonly maxBytes: number;
  /** Called with the size of each received chunk. An error thrown here stops reading. */
  readonly onBytes: (bytes: number) => void;
  /** Stops reading when aborted; its reason is thrown. */
  readonly signal: AbortSignal;
}

/**
 * Maximum bytes of request bodies read per iteration of the event loop; beyond it each body adds about two chunks. Without a
 * maximum, many large bodies arriving together block the event loop for 80 ms.
 */
const bytesPerIteration = 2 * 1024 * 1024;
let bytesLeft = bytesPerIteration;

function pauseIfFull(message: IncomingMessage, bytes: number): void {
  if (bytesLeft === bytesPerIteration) {
    setImmediate(() => {
      bytesLeft = bytesPerIteration;
    });
  }
  bytesLeft -= bytes;
  if (bytesLeft > 0) return;
  message.pause();
  setImmediate(() => message.resume());
}

/** Body length from the headers; `undefined` for a chunked body. */
export function announcedLength({ headers }: IncomingMessage): number | undefined {
  if (headers["transfer-encoding"] !== undefined) return undefined;
  return Number(headers["content-length"] ?? 0);
}

/**
 * Reads and discards a body before a response that closes the connection, because a socket closed with unread bytes sends a reset,
 * which can overtake the response. A client that expects `100 Continue` has sent no body.
 */
export async function discardBody(message: IncomingMessage): Promise<void> {
  if (message.headers.expect === undefined) await finished(message.resume()).catch(() => {});
}

export function tooLarge(maxBytes: number): EmbedError {
  const hint =
    maxBytes === maxJsonBytes
      ? "; send large images to POST /embed as raw bytes or multipart/form-data"
      : "";
  return new EmbedError("too_large", `the body is larger than ${maxBytes} bytes${hint}`);
}

/**
 * Reads a body into its own buffer. A body that arrives in one chunk is not copied; otherwise each byte is copied once.
 *
 * After a rejection the rest of the body is read and discarded, so that the connection stays usable.
 *
 * @throws {EmbedError} `too_large`; `bad_request` if the connection closes before the end of the body
 */
export function readBody(
  message: IncomingMessage,
  { maxBytes, onBytes, signal }: ReadBodyOptions,
): Promise<Buffer> {
  const announced = announcedLength(message);
  if (announced === 0) return Promise.resolve(Buffer.alloc(0));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let body: Buffer | undefined;
    let size = 0;

    const onData = (chunk: Buffer) => {
      try {
        onBytes(chunk.length);
        if (size + chunk.length > maxBytes) throw tooLarge(maxBytes);
      } catch (error) {
        fail(error);
        return;
      }
      if (announced === undefined) chunks.push(chunk);
      else if (chunk.length === announced) body = chunk;
      else {
        // pages that are never written are not allocated: the client may never send the announced bytes
        body ??= Buffer.allocUnsafeSlow(announced);
        chunk.copy(body, size);
      }
      size += chunk.length;
      if (size !== announced) pauseIfFull(message, chunk.length);
    };
    const onEnd = () => {
      unsubscribe();
      resolve(body ?? (chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, size)));
    };
    const onClose = () =>
      fail(new EmbedError("bad_request", "the connection closed before the end of the body"));
    const onAbort = () => fail(signal.reason);
    const fail = (error: unknown) => {
      unsubscribe();
      message.resume();
      reject(error);
    };
    const unsubscribe = () => {
      message.off("data", onData).off("end", onEnd).off("close", onClose);
      signal.removeEventListener("abort", onAbort);
    };

    // an abort is also emitted as `close`
    message.on("error", () => {});
    message.on("data", onData).once("end", onEnd).once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
