import { constants } from "node:fs";
import { lstat, open, rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { sha256Of } from "../files/model-info.ts";
import { sizeOf } from "../files/publish-file.ts";
import {
  classify,
  type FileRequest,
  type FileResponse,
  InterruptedDownload,
  RejectedDownload,
  redactedUrl,
  requestFile,
} from "./download-request.ts";

export interface DownloadOptions extends FileRequest {
  /** Path of the partial file. An earlier download in it is resumed. */
  readonly part: string;
  /** Maximum size; a longer file is rejected. */
  readonly maxBytes: number;
  /** Ends the download when aborted; the reason of the signal is thrown unchanged. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: DownloadProgress) => void;
  /** Receives a one-line error message and the time of the next retry. */
  readonly onRetry?: (line: string) => void;
  /** Waits before a retry. @default a timer */
  readonly wait?: (ms: number) => Promise<unknown>;
}

export interface DownloadProgress {
  /** Bytes in the partial file, including an earlier download. */
  readonly bytes: number;
  readonly total?: number;
}

const { O_CREAT, O_NOFOLLOW = 0, O_TRUNC, O_WRONLY } = constants;
/** Flags to open a file: a symbolic link, which another user of the folder could have made, is not followed. */
const resumedFile = O_WRONLY | O_NOFOLLOW;
const newFile = resumedFile | O_CREAT | O_TRUNC;

/** Maximum number of consecutive attempts without progress. */
const maxFailures = 5;
/** Maximum number of attempts, so that a server that sends little each time does not block forever. */
const maxAttempts = 100;
/** Maximum time between attempts, whatever `Retry-After` requests, in milliseconds. */
const maxWaitMs = 60_000;

/**
 * Downloads a file and resumes interrupted downloads, also those of an earlier process. Only the length is verified, not the
 * checksum.
 *
 * @returns Number of bytes that existed before and are kept.
 * @throws {Error} one line with the URL without its query and the reason. Received bytes are kept if they are usable.
 */
export async function download(options: DownloadOptions): Promise<{ readonly resumed: number }> {
  const { part, signal, onRetry, wait = sleep } = options;
  let resumed: number | undefined;
  let failures = 0;
  for (let attempt = 1; ; attempt++) {
    const before = (await sizeOf(part)) ?? 0;
    try {
      const kept = await fetchOnce(options);
      return { resumed: resumed ?? kept };
    } catch (error) {
      signal?.throwIfAborted();
      const redacted = redactedUrl(options.url);
      if (error instanceof RejectedDownload)
        throw new Error(`${redacted}: ${error.message}`, { cause: error });
      if (!(error instanceof InterruptedDownload)) throw error;
      resumed ??= error.kept;
      const bytes = (await sizeOf(part)) ?? 0;
      failures = bytes > before ? 1 : failures + 1;
      if (failures >= maxFailures || attempt >= maxAttempts) {
        const keptNote =
          bytes > 0 ? `; ${megabytes(bytes)} MB are kept, run the command again to resume` : "";
        throw new Error(
          `${redacted}: failed after ${attempt} attempts: ${error.message}${keptNote}`,
          {
            cause: error,
          },
        );
      }
      const waitMs = error.waitMs ?? Math.min(1000 * 2 ** (failures - 1), maxWaitMs);
      if (waitMs > maxWaitMs) {
        const seconds = Math.ceil(waitMs / 1000);
        throw new Error(`${redacted}: ${error.message}, and requires a wait of ${seconds} s`, {
          cause: error,
        });
      }
      onRetry?.(`${error.message}; retrying in ${Math.ceil(waitMs / 1000)} s`);
      await wait(waitMs);
      signal?.throwIfAborted();
    }
  }
}

/**
 * Downloads a file as {@link download} does, and verifies its checksum. An earlier download of another file is discarded.
 *
 * @returns SHA-256 of the file, and the number of bytes that existed before.
 * @throws {Error} with a one-line message; a file with another checksum is removed
 */
export async function downloadChecked(
  options: DownloadOptions,
): Promise<{ readonly sha256: string; readonly resumed: number }> {
  const { url, part, sha256: expected, onRetry } = options;
  for (;;) {
    const { resumed } = await download(options);
    const sha256 = await sha256Of(part);
    if (expected === undefined || sha256 === expected) return { sha256, resumed };
    const bytes = await sizeOf(part);
    await rm(part, { force: true });
    if (resumed === 0) {
      throw new Error(
        `${redactedUrl(url)}: sha256 must be ${expected}, got ${sha256} (${bytes} bytes); the download was discarded: check the address, the commit and the checksum`,
      );
    }
    onRetry?.("the earlier download is of another file; restarting");
  }
}

/** Sends one request and writes the response. @returns bytes that existed and are kept */
async function fetchOnce(options: DownloadOptions): Promise<number> {
  const { part, bytes } = options;
  const existing = await usableBytes(options);
  if (existing > 0 && existing === bytes) return existing;
  const finished = new AbortController();
  try {
    const signal = AbortSignal.any([finished.signal, options.signal ?? finished.signal]);
    const response = await requestFile(options, signal, {
      ...(existing > 0 && { range: `bytes=${existing}-` }),
    });
    // the file has no more bytes; its checksum is verified afterwards
    if (existing > 0 && response.status === 416) return existing;
    const from = response.status === 206 ? rangeStart(options, response, existing) : 0;
    if (response.status === 206 && from !== existing) {
      await rm(part, { force: true });
      throw new InterruptedDownload("the server sent a different range than requested", 0);
    }
    await writeResponse(options, response, from);
    return from;
  } catch (error) {
    throw classify(error, existing);
  } finally {
    // the rest of a response is not read
    finished.abort();
  }
}

/** Bytes of the part that are resumed. They may be of another file, so none without a checksum, which is verified afterwards. */
async function usableBytes({ part, bytes, sha256 }: DownloadOptions): Promise<number> {
  const found = await lstat(part).catch(() => undefined);
  if (found?.isSymbolicLink()) await rm(part);
  if (sha256 === undefined || !found?.isFile()) return 0;
  return bytes !== undefined && found.size > bytes ? 0 : found.size;
}

/** Offset and, if known, size of the file, from a partial response. */
function rangeOf(response: FileResponse) {
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(response.header("content-range") ?? "");
  if (response.status !== 206 || range === null) return undefined;
  return { start: Number(range[1]), total: range[2] === "*" ? undefined : Number(range[2]) };
}

function rangeStart({ bytes }: DownloadOptions, response: FileResponse, existing: number): number {
  const range = rangeOf(response);
  if (range === undefined)
    throw new InterruptedDownload("the server sent a partial response without a range", existing);
  const { start, total = bytes } = range;
  if (total !== bytes && bytes !== undefined) {
    throw new RejectedDownload(`must have ${bytes} bytes, got ${total}`);
  }
  return start;
}

async function writeResponse(
  { part, bytes, maxBytes, onProgress }: DownloadOptions,
  response: FileResponse,
  from: number,
): Promise<void> {
  const length = response.header("content-length");
  const announced = length === undefined ? undefined : from + Number(length);
  const total = bytes ?? rangeOf(response)?.total ?? announced;
  const encoding = response.header("content-encoding") ?? "identity";
  if (encoding !== "identity")
    throw new RejectedDownload(`must be sent without compression, got ${encoding}`);
  // a shorter range is still a range; a whole file of a different size is a different file
  if (response.status === 200 && bytes !== undefined && length !== undefined) {
    const type = response.header("content-type");
    const got = type === undefined ? length : `${length} of ${type}`;
    if (Number(length) !== bytes)
      throw new RejectedDownload(`must have ${bytes} bytes, got ${got}`);
  }
  // a login or error page must not replace an earlier part
  const page = /^text\/html\b/i.exec(response.header("content-type") ?? "")?.[0];
  if (page !== undefined) throw new RejectedDownload(`must be a model, got a web page (${page})`);
  const limit = Math.min(total ?? maxBytes, maxBytes);
  if (total !== undefined && total > maxBytes) {
    throw new RejectedDownload(`must have at most ${maxBytes} bytes, got ${total}`);
  }

  const handle = await open(part, from > 0 ? resumedFile : newFile);
  let offset = from;
  try {
    onProgress?.({ bytes: offset, total });
    for await (const data of response.body) {
      const chunk = data as Buffer;
      if (offset + chunk.length > limit)
        throw new RejectedDownload(`must have ${limit} bytes, got more`);
      for (let sent = 0; sent < chunk.length; ) {
        const { bytesWritten } = await handle.write(
          chunk,
          sent,
          chunk.length - sent,
          offset + sent,
        );
        sent += bytesWritten;
      }
      offset += chunk.length;
      onProgress?.({ bytes: offset, total });
    }
    if (total !== undefined && offset < total) {
      throw new InterruptedDownload(`the connection ended after ${offset} of ${total} bytes`, from);
    }
    // a complete part is later trusted, so it must be on disk
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}
