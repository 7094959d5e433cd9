import type { IncomingMessage } from "node:http";
import { finished } from "node:stream/promises";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import { EmbedError } from "./embed-error.ts";

export interface ReadBodyOptions {
  readonly maxBytes: number;
  /** Told of each piece that arrives. What it throws ends the reading. */
  readonly onBytes: (bytes: number) => void;
  /** Ends the reading; its reason is thrown. */
  readonly signal: AbortSignal;
}

/**
 * Bytes of bodies that are read in one iteration of the event loop, beyond which each body adds about two pieces. Many large
 * bodies that arrive at once would otherwise block the event loop for 80 ms.
 */
const bytesPerIteration = 2 * 1024 * 1024;
let room = bytesPerIteration;

function pauseIfFull(message: IncomingMessage, bytes: number): void {
  if (room === bytesPerIteration) {
    setImmediate(() => {
      room = bytesPerIteration;
    });
  }
  room -= bytes;
  if (room > 0) return;
  message.pause();
  setImmediate(() => message.resume());
}

/** Length that a client announced; `undefined` for a body in chunks. */
export function announcedLength({ headers }: IncomingMessage): number | undefined {
  if (headers["transfer-encoding"] !== undefined) return undefined;
  return Number(headers["content-length"] ?? 0);
}

/**
 * Reads a body and drops it, before a response that closes the connection: a socket that is closed with unread bytes sends a
 * reset, which can overtake the response. A client that expects `100 Continue` has sent no body.
 */
export async function discardBody(message: IncomingMessage): Promise<void> {
  if (message.headers.expect === undefined) await finished(message.resume()).catch(() => {});
}

export function tooLarge(maxBytes: number): EmbedError {
  const hint =
    maxBytes === maxJsonBytes ? "; send more as multipart/form-data or as raw bytes" : "";
  return new EmbedError("too_large", `the body is larger than ${maxBytes} bytes${hint}`);
}

/**
 * Read a body into memory of its own, each byte copied once at most: a body that arrives in one piece is that piece.
 *
 * What comes after a refusal is read and thrown away, so that the connection can go on.
 *
 * @throws {EmbedError} `too_large`; `bad_request` when the client ends the connection before the end of the body
 */
export function readBody(
  message: IncomingMessage,
  { maxBytes, onBytes, signal }: ReadBodyOptions,
): Promise<Buffer> {
  const announced = announcedLength(message);
  if (announced === 0) return Promise.resolve(Buffer.alloc(0));
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = [];
    let whole: Buffer | undefined;
    let size = 0;

    const onData = (piece: Buffer) => {
      try {
        onBytes(piece.length);
        if (size + piece.length > maxBytes) throw tooLarge(maxBytes);
      } catch (error) {
        fail(error);
        return;
      }
      if (announced === undefined) pieces.push(piece);
      else if (piece.length === announced) whole = piece;
      else {
        // memory that nothing was written to costs nothing: the client may never send what it announced
        whole ??= Buffer.allocUnsafeSlow(announced);
        piece.copy(whole, size);
      }
      size += piece.length;
      if (size !== announced) pauseIfFull(message, piece.length);
    };
    const onEnd = () => {
      leave();
      resolve(whole ?? (pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces, size)));
    };
    const onClose = () => fail(new EmbedError("bad_request", "the body ended early"));
    const onAbort = () => fail(signal.reason);
    const fail = (error: unknown) => {
      leave();
      message.resume();
      reject(error);
    };
    const leave = () => {
      message.off("data", onData).off("end", onEnd).off("close", onClose);
      signal.removeEventListener("abort", onAbort);
    };

    // an abort is also told as `close`
    message.on("error", () => {});
    message.on("data", onData).once("end", onEnd).once("close", onClose);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}
