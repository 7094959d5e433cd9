import { type Dispatcher, errors, request } from "undici";

/** Failure after which a retry may succeed. */
export class InterruptedDownload extends Error {
  constructor(
    message: string,
    /** Bytes of an earlier download that are kept. */
    readonly kept: number,
    readonly waitMs?: number,
  ) {
    super(message);
  }
}

/** Failure that a retry does not change. */
export class RejectedDownload extends Error {}

const maxRedirects = 10;
/** Time without data after which a request is retried, in milliseconds. */
const idleMs = 60_000;

export interface FileRequest {
  readonly url: URL;
  /** Size of the file; a server that announces another one is rejected before a byte is fetched. */
  readonly bytes?: number;
  /** SHA-256 of the file, lower-case hexadecimal; a server that announces another one is rejected. */
  readonly sha256?: string;
  /** Bearer token, sent to the origin of `url` only and not to redirect targets. */
  readonly token?: string;
  /** Variable with the token, for the message if the server rejects the request. */
  readonly tokenVariable?: string;
  readonly dispatcher: Dispatcher;
}

export interface FileResponse {
  readonly status: number;
  readonly body: Dispatcher.ResponseData["body"];
  header(name: string): string | undefined;
}

/** Requests a file, following redirects. @throws {RejectedDownload} or {InterruptedDownload} */
export async function requestFile(
  options: FileRequest,
  signal: AbortSignal,
  range: Readonly<Record<string, string>>,
): Promise<FileResponse> {
  const { dispatcher, token, tokenVariable } = options;
  let url = options.url;
  for (let redirects = maxRedirects; ; redirects--) {
    const ownToken = url.origin === options.url.origin ? token : undefined;
    const response = await request(url, {
      dispatcher,
      signal,
      headersTimeout: idleMs,
      bodyTimeout: idleMs,
      headers: {
        "user-agent": "clipstack",
        accept: "*/*",
        // length and range refer to the file only without compression
        "accept-encoding": "identity",
        ...range,
        ...(ownToken !== undefined && { authorization: `Bearer ${ownToken}` }),
      },
    });
    // a response that is not read may still fail
    response.body.on("error", () => {});
    const header = (name: string) => {
      const value = response.headers[name];
      return Array.isArray(value) ? value[0] : value;
    };
    checkAnnounced(options, header);
    const { statusCode: status } = response;
    if ([301, 302, 303, 307, 308].includes(status)) {
      // its body is not read
      response.body.destroy();
      if (redirects === 0) throw new RejectedDownload(`must end after ${maxRedirects} redirects`);
      url = redirectTarget(url, header("location"));
      continue;
    }
    if (status === 200 || status === 206 || (status === 416 && "range" in range)) {
      return { status, body: response.body, header };
    }
    response.body.destroy();
    const hint =
      tokenVariable === undefined
        ? ""
        : `: ${tokenVariable} ${token === undefined ? "may be needed" : "is not accepted"}, or a proxy or a mirror is in the way`;
    throw statusError(status, header("retry-after"), url, hint);
  }
}

/** Checks the checksum and size that the hub sends with a redirect. */
function checkAnnounced(
  { sha256, bytes }: Pick<FileRequest, "sha256" | "bytes">,
  header: (name: string) => string | undefined,
): void {
  const announced = header("x-linked-etag")?.replace(/^(W\/)?"(.*)"$/, "$2");
  if (sha256 !== undefined && announced !== undefined && /^[0-9a-f]{64}$/.test(announced)) {
    if (announced !== sha256)
      throw new RejectedDownload(`sha256 must be ${sha256}, got ${announced}`);
  }
  const size = header("x-linked-size");
  if (bytes !== undefined && size !== undefined && Number(size) !== bytes) {
    throw new RejectedDownload(`must have ${bytes} bytes, got ${size}`);
  }
}

function redirectTarget(from: URL, location: string | undefined): URL {
  const next =
    location !== undefined && URL.canParse(location, from.href)
      ? new URL(location, from)
      : undefined;
  const hasNoUser = next !== undefined && next.username === "" && next.password === "";
  if (!hasNoUser || !/^https?:$/.test(next.protocol)) {
    throw new RejectedDownload("must lead to http://… or https://… without a user or a password");
  }
  if (from.protocol === "https:" && next.protocol === "http:") {
    throw new RejectedDownload(`must not lead from https to http, got ${redactedUrl(next)}`);
  }
  return next;
}

function statusError(
  status: number,
  retryAfter: string | undefined,
  url: URL,
  hint: string,
): Error {
  const answered = `${url.host} responded with ${status}`;
  if (status === 408 || status === 429 || status >= 500) {
    return new InterruptedDownload(answered, 0, waitOf(retryAfter));
  }
  return new RejectedDownload(status === 401 || status === 403 ? `${answered}${hint}` : answered);
}

/** Milliseconds of a `Retry-After` in seconds or as a date. */
function waitOf(retryAfter: string | undefined): number | undefined {
  if (retryAfter === undefined) return undefined;
  if (/^\d+$/.test(retryAfter)) return Number(retryAfter) * 1000;
  const at = Date.parse(retryAfter);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

/** Classifies a network error by whether a retry can succeed. */
export function classify(error: unknown, have: number): unknown {
  if (error instanceof InterruptedDownload) return error;
  if (error instanceof RejectedDownload) return error;
  const { code = "", message } = rootOf(error);
  if (error instanceof errors.HTTPParserError) {
    return new RejectedDownload(`the response is not HTTP: ${message}`);
  }
  const proxyStatus = /^Proxy response \((\d+)\)/.exec(message)?.[1];
  if (proxyStatus !== undefined) {
    const answered = `the proxy responded with ${proxyStatus}`;
    return Number(proxyStatus) >= 500
      ? new InterruptedDownload(answered, have)
      : new RejectedDownload(answered);
  }
  if (message.startsWith("Proxy Authentication Required")) {
    return new RejectedDownload("the proxy responded with 407");
  }
  if (permanentCodes.test(code)) return new RejectedDownload(`cannot be reached: ${message}`);
  if (networkCodes.test(code))
    return new InterruptedDownload(`the connection failed: ${message}`, have);
  return error;
}

/** Codes such as of an unknown host or an untrusted certificate. */
const permanentCodes =
  /^(ENOTFOUND|UND_ERR_INVALID|ERR_TLS|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_SSL|ERR_INVALID)/;
const networkCodes =
  /^(UND_ERR|HPE_|ECONN|EPIPE|ETIMEDOUT|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENETDOWN|ESOCKET)/;

function rootOf(error: unknown): { readonly code?: string; readonly message: string } {
  if (!(error instanceof Error)) return { message: String(error) };
  const inner = error instanceof AggregateError ? error.errors[0] : undefined;
  const { code, message } = error as NodeJS.ErrnoException;
  if (inner instanceof Error) return { code: code ?? rootOf(inner).code, message: inner.message };
  return { code, message };
}

/** URL without its query, which holds the secret of a signed URL. */
export function redactedUrl({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}
