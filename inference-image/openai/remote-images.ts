import { lookup as resolveName } from "node:dns";
import type { LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import type { Agent, Dispatcher } from "undici";
import { EmbedError } from "../../http/embed-error.ts";
import { DownloadMemory } from "./download-memory.ts";

export interface RemoteImagesOptions {
  /** Origins from which images are downloaded, such as `https://images.example.com`. */
  readonly origins: readonly string[];
  /** Maximum size of an image in bytes. */
  readonly maxBytes: number;
  /** Maximum time of a download with all redirects, in milliseconds. */
  readonly timeoutMs: number;
  readonly maxRedirects: number;
  /** Memory for images of all requests in bytes; further requests wait. */
  readonly maxBytesInFlight: number;
  /** Resolves host names. @default the resolver of the operating system */
  readonly lookup?: typeof resolveName;
}

/** Maximum number of connections per origin. */
const connections = 8;
/** Maximum bytes read of a body that is not an image; a longer one closes the connection. */
const maxDiscardedBytes = 64 * 1024;
const redirectStatuses: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** Downloads images that requests name by URL, from the origins of an allowlist. */
export class RemoteImages {
  readonly #options: RemoteImagesOptions;
  readonly #memory: DownloadMemory;
  #agent: Agent | undefined;

  constructor(options: RemoteImagesOptions) {
    this.#options = options;
    this.#memory = new DownloadMemory(options.maxBytesInFlight);
  }

  /** Frees the memory of the files that were downloaded for a request. */
  release(request: object): void {
    this.#memory.release(request);
  }

  /** @throws {EmbedError} if no request may name an image at this URL */
  check(url: string): URL {
    if (this.#options.origins.length === 0) {
      throw new EmbedError(
        "bad_request",
        "is a URL: this server downloads no images; send the file as a data: URI",
      );
    }
    if (!URL.canParse(url)) throw new EmbedError("bad_request", "is not a valid URL");
    return this.#checkAllowed(new URL(url));
  }

  /**
   * Downloads a file. Its memory is reserved once its size is known, and held until {@link release}.
   *
   * @param url - As returned by {@link check}.
   * @param request - The request that names the file.
   * @throws {EmbedError} `bad_request` if it is unavailable, `too_large`; or the signal's reason
   */
  async download(url: URL, signal: AbortSignal, request: object): Promise<Uint8Array> {
    const { timeoutMs } = this.#options;
    const timeout = new DownloadTimeout(timeoutMs);
    const stopped = AbortSignal.any([signal, timeout.signal]);
    try {
      const { headers, body } = await this.#follow(url, stopped);
      timeout.pause();
      await this.#memory.claim(request, this.#sizeOf(headers), signal);
      timeout.resume();
      return new Uint8Array(await body.arrayBuffer());
    } catch (error) {
      signal.throwIfAborted();
      if (timeout.signal.aborted) {
        const message = `cannot be downloaded: it takes longer than ${timeoutMs} ms`;
        throw new EmbedError("bad_request", message, { cause: error });
      }
      throw this.#errorOf(error);
    } finally {
      timeout.pause();
    }
  }

  /** Returns the size of a file in bytes, or the maximum size if its server does not state the size. */
  #sizeOf({ "content-length": length }: Dispatcher.ResponseData["headers"]): number {
    const { maxBytes } = this.#options;
    return typeof length === "string" && /^\d+$/.test(length)
      ? Math.min(Number(length), maxBytes)
      : maxBytes;
  }

  async close(): Promise<void> {
    await this.#agent?.destroy();
  }

  async #follow(start: URL, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const { maxRedirects } = this.#options;
    const { Agent, request } = await import("./http-client.ts");
    this.#agent ??= this.#openAgent(Agent);
    const dispatcher = this.#agent;
    let url = start;
    for (let redirects = 0; redirects <= maxRedirects; redirects++) {
      const response = await request(url, { dispatcher, signal });
      const { statusCode, body } = response;
      if (statusCode === 200) return response;
      // a consumed body leaves the connection usable
      await body.dump({ limit: maxDiscardedBytes, signal });
      url = this.#checkAllowed(redirectOf(url, response));
    }
    throw new EmbedError("bad_request", `has more than ${maxRedirects} redirects`);
  }

  #checkAllowed(url: URL): URL {
    const { origin, username, password } = url;
    if (username !== "" || password !== "") {
      throw new EmbedError("bad_request", "is a URL with a user or password");
    }
    if (this.#options.origins.includes(origin)) return url;
    throw new EmbedError(
      "bad_request",
      `is a URL of ${origin === "null" ? url.protocol : origin}, which this server does not allow`,
    );
  }

  #openAgent(HttpAgent: typeof Agent): Agent {
    const { maxBytes, timeoutMs, lookup = resolveName } = this.#options;
    return new HttpAgent({
      connections,
      maxResponseSize: maxBytes,
      connect: { lookup: publicLookup(lookup), timeout: timeoutMs },
    });
  }

  #errorOf(error: unknown): EmbedError {
    if (error instanceof EmbedError) return error;
    const { code } = error as { readonly code?: string };
    const cause = { cause: error };
    if (code === "UND_ERR_RES_EXCEEDED_MAX_SIZE") {
      const message = `is larger than ${this.#options.maxBytes} bytes`;
      return new EmbedError("too_large", message, cause);
    }
    const reason = code === undefined ? "the download failed" : code;
    return new EmbedError("bad_request", `cannot be downloaded: ${reason}`, cause);
  }
}

/** Time limit that does not run while a download waits for memory. */
class DownloadTimeout {
  readonly #controller = new AbortController();
  #remainingMs: number;
  #startedAt = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(timeoutMs: number) {
    this.#remainingMs = timeoutMs;
    this.resume();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  resume(): void {
    this.#startedAt = performance.now();
    this.#timer = setTimeout(() => this.#controller.abort(), this.#remainingMs);
  }

  pause(): void {
    clearTimeout(this.#timer);
    this.#remainingMs = Math.max(1, this.#remainingMs - (performance.now() - this.#startedAt));
  }
}

/**
 * Wraps a resolver so that it fails unless all addresses of a name are public. A connection calls it once and uses its result: the
 * address that is checked is the address that is connected to, even if the name changes afterwards. Literal addresses are not
 * resolved: they are allowed if the operator lists them.
 */
function publicLookup(lookup: typeof resolveName): LookupFunction {
  return (host, options, callback) => {
    lookup(host, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, "", 0);
      if (!addresses.every(({ address }) => isPublicAddress(address))) {
        const message = "cannot be downloaded: its host has an address that is not public";
        return callback(new EmbedError("bad_request", message), "", 0);
      }
      if (options.all) return callback(null, addresses);
      const [{ address, family }] = addresses as [(typeof addresses)[0]];
      return callback(null, address, family);
    });
  };
}

/** Returns whether an address is routed in the public internet: not private, loopback, link-local, multicast or reserved. */
export function isPublicAddress(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === "unicast";
}

/** @throws {EmbedError} if the response is not a redirect */
function redirectOf(url: URL, { statusCode, headers: { location } }: Dispatcher.ResponseData): URL {
  if (!redirectStatuses.has(statusCode)) {
    const message = `cannot be downloaded: its server responds ${statusCode}`;
    throw new EmbedError("bad_request", message);
  }
  if (typeof location === "string" && URL.canParse(location, url.href)) {
    return new URL(location, url);
  }
  throw new EmbedError("bad_request", "is redirected without a valid location");
}
