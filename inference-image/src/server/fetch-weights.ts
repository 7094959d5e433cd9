import { createHash } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { sha256Of } from "../model/model-info.ts";
import { makeFolder, sizeOf } from "../model/publish-file.ts";
import {
  type CheckWeightsOptions,
  checkedBy,
  checkWeights,
  weightsFileName,
} from "./check-weights.ts";
import { readArguments, UsageError } from "./role-arguments.ts";

export interface FetchWeightsOptions extends CheckWeightsOptions {
  /** Where `model.onnx` is. Redirects are followed. */
  readonly url: string;
}

/** Of `fetch-weights …`. @throws {UsageError} */
export function readFetchWeightsArguments(args: readonly string[]): FetchWeightsOptions {
  const { url, ...rest } = readArguments("fetch-weights", args, {
    required: ["url", "folder", "sha256"],
    optional: ["execution-provider"],
  });
  if (!URL.canParse(url) || !/^https?:\/\//.test(url)) {
    throw new UsageError(`fetch-weights: --url must be http://… or https://…, got '${url}'`);
  }
  return { url, ...checkedBy("fetch-weights", rest) };
}

/** A server that sends nothing for so long is given up. */
const idleMs = 60_000;
/** Between two lines about how far it is. */
const progressMs = 10_000;

/**
 * Bring the weights to a folder that has room for them, and make it ready as {@link checkWeights} does. A file that is there
 * and is the right one is not fetched again. One process at a time.
 *
 * @param onProgress - Told in one line how far it is.
 * @returns What the folder has, in one line.
 * @throws {Error} one line: the address without its query, the rule and what came.
 */
export async function fetchWeights(
  { url, ...options }: FetchWeightsOptions,
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
    const { got, bytes } = await download(new URL(url), part, onProgress);
    if (got !== sha256) {
      throw new Error(`${shown(url)}: sha256 must be ${sha256}, got ${got} (${bytes} bytes)`);
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

/** Write what `url` has to `path`; its SHA-256 is computed on the way. */
async function download(
  url: URL,
  path: string,
  onProgress: (line: string) => void,
): Promise<{ readonly got: string; readonly bytes: number }> {
  const gone = new AbortController();
  const idle = setTimeout(() => gone.abort(), idleMs);
  const where = shown(url.href);
  try {
    const response = await fetch(url, { signal: gone.signal });
    if (!response.ok || response.body === null) {
      await response.body?.cancel();
      throw new Refused(`${where}: answered ${response.status} ${response.statusText}`.trimEnd());
    }
    const total = Number(response.headers.get("content-length"));
    const hash = createHash("sha256");
    const handle = await open(path, "w");
    let bytes = 0;
    let toldAt = performance.now();
    try {
      for await (const chunk of response.body) {
        idle.refresh();
        hash.update(chunk);
        await writeAll(handle, chunk);
        bytes += chunk.byteLength;
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
    if (gone.signal.aborted) throw new Error(`${where}: sent nothing for ${idleMs / 1000} s`);
    const { code, message, cause } = error as NodeJS.ErrnoException;
    // of a file
    if (code !== undefined && !(error instanceof TypeError)) throw error;
    throw new Error(`${where}: cannot be fetched: ${reasonOf(cause) ?? message}`, { cause: error });
  } finally {
    clearTimeout(idle);
  }
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
  if (!(cause instanceof Error)) return undefined;
  const inner = cause instanceof AggregateError ? cause.errors[0] : undefined;
  const { code } = cause as NodeJS.ErrnoException;
  return cause.message || (inner instanceof Error ? inner.message : undefined) || code;
}

/** Without its query: a signed address has a secret there. */
function shown(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname}`;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1e6);
}
