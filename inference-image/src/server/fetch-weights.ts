import { createHash } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { sha256Of } from "../model/model-info.ts";
import { makeFolder, sizeOf } from "../model/publish-file.ts";
import {
  type CheckWeightsOptions,
  checkWeights,
  requireSha256,
  weightsFileName,
} from "./check-weights.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface FetchWeightsOptions extends CheckWeightsOptions {
  /** Where `model.onnx` is, without a user or a password. Redirects are followed, from https to https only. */
  readonly url: string;
  /** A longer file is refused. */
  readonly maxBytes: number;
  /** Until the file is there, whatever is sent meanwhile. */
  readonly timeoutSeconds: number;
}

/** Of `fetch-weights …`. What it is given as an address is never printed: a secret may be in it. @throws {UsageError} */
export function readFetchWeightsArguments(args: readonly string[]): FetchWeightsOptions {
  const {
    url,
    "max-bytes": maxBytes,
    "timeout-seconds": timeoutSeconds = "900",
    ...rest
  } = readArguments("fetch-weights", args, {
    required: ["url", "folder", "sha256", "max-bytes"],
    optional: ["timeout-seconds"],
  });
  if (!URL.canParse(url) || !/^https?:\/\//.test(url)) {
    throw new UsageError("fetch-weights: --url must be http://… or https://…");
  }
  if (hasUser(new URL(url))) {
    throw new UsageError("fetch-weights: --url must have no user and no password");
  }
  // 19 digits: the largest size that Kubernetes can say
  if (!/^[1-9]\d{0,18}$/.test(maxBytes)) {
    throw new UsageError(
      `fetch-weights: --max-bytes must be a whole number, 1 or more, got '${maxBytes}'`,
    );
  }
  if (!/^[1-9]\d*$/.test(timeoutSeconds) || Number(timeoutSeconds) > maxTimeoutSeconds) {
    throw new UsageError(
      `fetch-weights: --timeout-seconds must be a whole number, 1 to ${maxTimeoutSeconds}, got '${timeoutSeconds}'`,
    );
  }
  return {
    url,
    maxBytes: Number(maxBytes),
    timeoutSeconds: Number(timeoutSeconds),
    ...requireSha256("fetch-weights", rest),
  };
}

/** Four hours: as long as a pod of the chart may take to start. */
const maxTimeoutSeconds = 14_400;
/** A server that sends nothing for so long is given up. */
const idleMs = 60_000;
/** Between two lines about how far it is. */
const progressMs = 10_000;
/** From one address to the next. */
const maxRedirects = 10;

/**
 * Bring the weights to a folder that has room for them, and make it ready as {@link checkWeights} does. A file that is there
 * and is the right one is not fetched again. One process at a time.
 *
 * @param onProgress - Told in one line how far it is.
 * @returns What the folder has, in one line.
 * @throws {Error} one line: the address without its query, the rule and what came.
 */
export async function fetchWeights(
  { url, maxBytes, timeoutSeconds, ...options }: FetchWeightsOptions,
  onProgress: (line: string) => void = () => {},
): Promise<string> {
  const { folder, sha256 } = options;
  const file = join(folder, weightsFileName);
  if ((await sizeOf(file)) !== undefined && (await sha256Of(file)) === sha256) {
    return `it was there already; ${await checkWeights(options)}`;
  }
  const part = `${file}.part`;
  try {
    await makeFolder(folder);
    const startedAt = performance.now();
    const { got, bytes } = await download(new URL(url), part, {
      maxBytes,
      timeoutSeconds,
      onProgress,
    });
    if (got !== sha256) {
      throw new Error(
        `${shown(new URL(url))}: sha256 must be ${sha256}, got ${got} (${bytes} bytes)`,
      );
    }
    await rename(part, file);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    return `fetched in ${seconds} s; ${await checkWeights(options)}`;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOSPC") throw new Error(`${folder}: no room is left`, { cause: error });
    if (code === "EACCES" || code === "EROFS") {
      throw new Error(`${folder}: cannot be written: ${message}`, { cause: error });
    }
    throw error;
  } finally {
    await rm(part, { force: true }).catch(() => {});
  }
}

interface DownloadOptions extends Pick<FetchWeightsOptions, "maxBytes" | "timeoutSeconds"> {
  readonly onProgress: (line: string) => void;
}

/** Write what `url` has to `path`; its SHA-256 is computed on the way. */
async function download(
  url: URL,
  path: string,
  { maxBytes, timeoutSeconds, onProgress }: DownloadOptions,
): Promise<{ readonly got: string; readonly bytes: number }> {
  const where = shown(url);
  const gone = new AbortController();
  const giveUp = (why: string) => gone.abort(new Refused(`${where}: ${why}`));
  const idle = setTimeout(() => giveUp(`sent nothing for ${idleMs / 1000} s`), idleMs);
  const deadline = setTimeout(
    () => giveUp(`must be there within ${timeoutSeconds} s, and is not`),
    timeoutSeconds * 1000,
  );
  try {
    const response = await answerOf(url, gone.signal);
    const total = Number(response.headers.get("content-length"));
    const tooLong = (got: string) =>
      new Refused(`${where}: must be at most ${maxBytes} bytes, got ${got}`);
    if (total > maxBytes) throw tooLong(`${total}`);
    const hash = createHash("sha256");
    const handle = await open(path, "w");
    let bytes = 0;
    let toldAt = performance.now();
    try {
      for await (const chunk of response.body ?? []) {
        idle.refresh();
        bytes += chunk.byteLength;
        if (bytes > maxBytes) throw tooLong("more");
        hash.update(chunk);
        await writeAll(handle, chunk);
        if (performance.now() - toldAt < progressMs) continue;
        toldAt = performance.now();
        onProgress(`${megabytes(bytes)}${total > 0 ? ` of ${megabytes(total)}` : ""} MB fetched`);
      }
    } finally {
      await handle.close();
    }
    return { got: hash.digest("hex"), bytes };
  } catch (error) {
    if (error instanceof Refused) throw error;
    if (gone.signal.aborted) throw gone.signal.reason;
    const { code, cause } = error as NodeJS.ErrnoException;
    // of a file
    if (code !== undefined && !(error instanceof TypeError)) throw error;
    // without the error's own words: they can have the address, whole
    const reason = reasonOf(cause);
    throw new Error(`${where}: cannot be fetched${reason === undefined ? "" : `: ${reason}`}`, {
      cause: error,
    });
  } finally {
    clearTimeout(idle);
    clearTimeout(deadline);
    // what is left of an answer is not waited for
    gone.abort();
  }
}

/** What is at the end of the redirects. */
async function answerOf(url: URL, signal: AbortSignal, left = maxRedirects): Promise<Response> {
  const where = shown(url);
  const response = await fetch(url, { signal, redirect: "manual" });
  const location = response.headers.get("location");
  if ([301, 302, 303, 307, 308].includes(response.status) && location !== null) {
    const next = URL.canParse(location, url.href) ? new URL(location, url) : undefined;
    if (next === undefined || !/^https?:$/.test(next.protocol) || hasUser(next)) {
      throw new Refused(
        `${where}: must lead to http://… or https://… without a user or a password`,
      );
    }
    if (url.protocol === "https:" && next.protocol === "http:") {
      throw new Refused(`${where}: must not lead from https to http, got ${shown(next)}`);
    }
    if (left === 0) throw new Refused(`${where}: must end after ${maxRedirects} redirects`);
    return await answerOf(next, signal, left - 1);
  }
  if (!response.ok) {
    throw new Refused(`${where}: answered ${response.status} ${response.statusText}`.trimEnd());
  }
  return response;
}

class Refused extends Error {}

async function writeAll(
  handle: Awaited<ReturnType<typeof open>>,
  chunk: Uint8Array,
): Promise<void> {
  for (let from = 0; from < chunk.byteLength; ) {
    const { bytesWritten } = await handle.write(chunk, from);
    from += bytesWritten;
  }
}

/** Of an error of the network: its own words, or those of the addresses that were tried. */
function reasonOf(cause: unknown): string | undefined {
  // of an argument: its words can have the argument
  if (!(cause instanceof Error) || cause instanceof TypeError) return undefined;
  const inner = cause instanceof AggregateError ? cause.errors[0] : undefined;
  const { code } = cause as NodeJS.ErrnoException;
  return cause.message || (inner instanceof Error ? inner.message : undefined) || code;
}

function hasUser({ username, password }: URL): boolean {
  return username !== "" || password !== "";
}

/** Without its query: a signed address has a secret there. */
function shown({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1e6);
}
