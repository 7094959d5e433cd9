import { open, readFile, rm, writeFile } from "node:fs/promises";
import { type Dispatcher, errors, request } from "undici";
import { z } from "zod";
import { sha256Of } from "./model-info.ts";
import { sizeOf } from "./publish-file.ts";

export interface DownloadOptions {
  readonly url: URL;
  /** Where the bytes go. What an earlier download left there is gone on with. */
  readonly part: string;
  /** Size of the whole file; another one is refused before a byte of it is fetched. */
  readonly bytes?: number;
  /** What the file must be, lower-case hexadecimal: a server that announces another one is refused. */
  readonly sha256?: string;
  /** A longer file is refused. */
  readonly maxBytes: number;
  /** Sent to the origin of `url`, and to no other that it leads to. */
  readonly token?: string;
  /** Variable that the token is from, for the message of a server that rejects the request. */
  readonly tokenVariable?: string;
  /** Aborted at a deadline; its reason is thrown as it is. */
  readonly signal?: AbortSignal;
  readonly dispatcher: Dispatcher;
  readonly onProgress?: (progress: DownloadProgress) => void;
  /** Told in one line what went wrong, and when it is tried again. */
  readonly onRetry?: (line: string) => void;
  /** @default - the time passes */
  readonly wait?: (ms: number) => Promise<void>;
}

export interface DownloadProgress {
  /** Bytes that are there, those of an earlier download too. */
  readonly bytes: number;
  readonly total?: number;
}

/** Tries in a row that bring nothing, before it is given up. */
const maxFailures = 5;
/** Tries in all: a server that sends a little each time does not keep this for ever. */
const maxTries = 100;
/** From one address to the next. */
const maxRedirects = 10;
/** A server that sends nothing for so long is asked again. */
const idleMs = 60_000;
/** The longest time that is waited, whatever a server asks for. */
const maxWaitMs = 60_000;

/**
 * Fetch a file, going on where it was interrupted: in this process, or by an earlier one. What came is checked for its
 * length only; its checksum is the caller's.
 *
 * @returns How many bytes were there before it began, and are kept.
 * @throws {Error} one line: the address without its query, and what is wrong. What came is kept, unless it is of no use.
 */
export async function download(options: DownloadOptions): Promise<{ readonly resumed: number }> {
  const { part, signal, onRetry, wait = pause } = options;
  let resumed: number | undefined;
  let failures = 0;
  for (let tries = 1; ; tries++) {
    const before = (await sizeOf(part)) ?? 0;
    try {
      const kept = await fetchOnce(options);
      return { resumed: resumed ?? kept };
    } catch (error) {
      signal?.throwIfAborted();
      const where = redactedUrl(options.url);
      if (error instanceof Refused) throw new Error(`${where}: ${error.message}`, { cause: error });
      if (!(error instanceof Interrupted)) throw error;
      resumed ??= error.kept;
      const bytes = (await sizeOf(part)) ?? 0;
      failures = bytes > before ? 1 : failures + 1;
      if (failures >= maxFailures || tries >= maxTries) {
        const rest = bytes > 0 ? `; the ${megabytes(bytes)} MB that came are kept` : "";
        throw new Error(`${where}: ${error.message}, tried ${tries} times${rest}`, {
          cause: error,
        });
      }
      const waitMs = error.waitMs ?? Math.min(1000 * 2 ** (failures - 1), maxWaitMs);
      if (waitMs > maxWaitMs) {
        const asked = `asks to come back in ${Math.ceil(waitMs / 1000)} s`;
        throw new Error(`${where}: ${error.message}, and ${asked}`, { cause: error });
      }
      onRetry?.(`${error.message}; trying again in ${Math.ceil(waitMs / 1000)} s`);
      await wait(waitMs);
      signal?.throwIfAborted();
    }
  }
}

/**
 * Downloads a file as {@link download} does, and checks its checksum. What an earlier download left of another file is discarded.
 *
 * @returns SHA-256 of the file, and how many bytes of it were there before.
 * @throws {Error} one line; a file with another checksum is removed
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
    await discardPart(part);
    if (resumed === 0) {
      throw new Error(
        `${redactedUrl(url)}: sha256 must be ${expected}, got ${sha256} (${bytes} bytes)`,
      );
    }
    onRetry?.("what an earlier download left is of another file; starting again");
  }
}

/** What can be better the next time. */
class Interrupted extends Error {
  constructor(
    message: string,
    readonly kept: number,
    readonly waitMs?: number,
  ) {
    super(message);
  }
}

/** What would be the same the next time. */
class Refused extends Error {}

/** What is known of the file that a part is of. */
const partState = z.object({
  /** Without its query: a signed address has a secret there, and another one each time. */
  url: z.string(),
  /** As `If-Range` takes it: a strong entity tag, or a date. */
  validator: z.string().optional(),
  total: z.int().optional(),
});
type PartState = z.infer<typeof partState>;

/** Where that is kept, beside the part. */
export function partStatePath(part: string): string {
  return part.replace(/(\.part)?$/, ".json");
}

async function readState(part: string): Promise<PartState | undefined> {
  try {
    return partState.parse(JSON.parse(await readFile(partStatePath(part), "utf8")));
  } catch {
    return undefined;
  }
}

/** Remove what an interrupted download left. */
export async function discardPart(part: string): Promise<void> {
  await Promise.all([rm(part, { force: true }), rm(partStatePath(part), { force: true })]);
}

/** Bytes that can be gone on with: those of the same file, as far as can be known. */
async function usableBytes(
  { part, bytes, sha256, url }: DownloadOptions,
  state: PartState | undefined,
): Promise<number> {
  const have = (await sizeOf(part)) ?? 0;
  if (bytes !== undefined && have > bytes) return 0;
  // the checksum will say whether they were right
  if (sha256 !== undefined) return have;
  return state?.url === redactedUrl(url) && state.validator !== undefined ? have : 0;
}

/** Ask once, and write what comes. @returns bytes that were there already, and are kept */
async function fetchOnce(options: DownloadOptions): Promise<number> {
  const { url, part, bytes } = options;
  const state = await readState(part);
  const have = await usableBytes(options, state);
  if (have > 0 && have === bytes) return have;
  const sameAddress = state?.url === redactedUrl(url) ? state.validator : undefined;
  const gone = new AbortController();
  try {
    const signal = AbortSignal.any([gone.signal, options.signal ?? gone.signal]);
    const answer = await answerOf(options, signal, {
      ...(have > 0 && { range: `bytes=${have}-` }),
      ...(have > 0 && sameAddress !== undefined && { "if-range": sameAddress }),
    });
    if (have > 0 && answer.status === 416) return await atTheEnd(options, answer, have);
    const from = answer.status === 206 ? startOf(options, answer, have) : 0;
    if (answer.status === 206 && from !== have) {
      await discardPart(part);
      throw new Interrupted("the server sent another part than was asked for", 0);
    }
    await writeAnswer(options, answer, from);
    return from;
  } catch (error) {
    throw meaningOf(error, have);
  } finally {
    // what is left of an answer is not waited for
    gone.abort();
  }
}

/** `416`: there is nothing after what is there, or the file is another one by now. */
async function atTheEnd({ part }: DownloadOptions, answer: Answer, have: number): Promise<number> {
  const total = /^bytes \*\/(\d+)$/.exec(answer.header("content-range") ?? "")?.[1];
  if (total !== undefined && Number(total) === have) return have;
  await discardPart(part);
  throw new Interrupted(`the server has no more than ${total ?? "fewer"} bytes`, 0);
}

/** Of the answer that is a part of a file: how long all of it is. */
function wholeOf(answer: Answer): number | undefined {
  const whole = /^bytes \d+-\d+\/(\d+)$/.exec(answer.header("content-range") ?? "")?.[1];
  return answer.status === 206 && whole !== undefined ? Number(whole) : undefined;
}

/** Where a part of the file begins. */
function startOf({ bytes }: DownloadOptions, answer: Answer, have: number): number {
  const range = /^bytes (\d+)-\d+\/(\d+|\*)$/.exec(answer.header("content-range") ?? "");
  if (range === null) throw new Interrupted("the server sent a part without saying which", have);
  if (bytes !== undefined && range[2] !== "*" && Number(range[2]) !== bytes) {
    throw new Refused(`must have ${bytes} bytes, got ${range[2]}`);
  }
  return Number(range[1]);
}

async function writeAnswer(
  { url, part, bytes, maxBytes, onProgress }: DownloadOptions,
  answer: Answer,
  from: number,
): Promise<void> {
  const length = answer.header("content-length");
  const announced = length === undefined ? undefined : from + Number(length);
  const total = bytes ?? wholeOf(answer) ?? announced;
  const encoding = answer.header("content-encoding") ?? "identity";
  if (encoding !== "identity") throw new Refused(`must be sent as it is, got it as ${encoding}`);
  // less of a part is a part too; a whole file of another size is another file
  if (answer.status === 200 && bytes !== undefined && length !== undefined) {
    const type = answer.header("content-type");
    const got = type === undefined ? length : `${length} of ${type}`;
    if (Number(length) !== bytes) throw new Refused(`must have ${bytes} bytes, got ${got}`);
  }
  // of a login or an error: it must not take the place of what came before
  const page = /^text\/html\b/i.exec(answer.header("content-type") ?? "")?.[0];
  if (page !== undefined) throw new Refused(`must be a model, got a page (${page})`);
  const most = Math.min(total ?? maxBytes, maxBytes);
  if (total !== undefined && total > maxBytes) {
    throw new Refused(`must have at most ${maxBytes} bytes, got ${total}`);
  }

  const state: PartState = { url: redactedUrl(url), validator: validatorOf(answer), total };
  const handle = await open(part, from > 0 ? "r+" : "w");
  let at = from;
  try {
    await writeFile(partStatePath(part), `${JSON.stringify(state)}\n`);
    onProgress?.({ bytes: at, total });
    for await (const chunk of answer.body) {
      const piece = chunk as Buffer;
      if (at + piece.length > most) throw new Refused(`must have ${most} bytes, sends more`);
      for (let sent = 0; sent < piece.length; ) {
        const { bytesWritten } = await handle.write(piece, sent, piece.length - sent, at + sent);
        sent += bytesWritten;
      }
      at += piece.length;
      onProgress?.({ bytes: at, total });
    }
    if (total !== undefined && at < total) {
      throw new Interrupted(`the connection ended after ${at} of ${total} bytes`, from);
    }
    // what is found whole is believed to be on the disk
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** What tells this content from another at the same address. */
function validatorOf(answer: Answer): string | undefined {
  const tag = answer.header("etag");
  // a weak one says "much the same", which a part of a file is not
  if (tag !== undefined && !tag.startsWith("W/")) return tag;
  return tag === undefined ? answer.header("last-modified") : undefined;
}

interface Answer {
  readonly status: number;
  readonly body: Dispatcher.ResponseData["body"];
  header(name: string): string | undefined;
}

/** What is at the end of the redirects. */
async function answerOf(
  options: DownloadOptions,
  signal: AbortSignal,
  range: Readonly<Record<string, string>>,
): Promise<Answer> {
  const { dispatcher, token, tokenVariable } = options;
  let url = options.url;
  for (let left = maxRedirects; ; left--) {
    const secret = url.origin === options.url.origin ? token : undefined;
    const response = await request(url, {
      dispatcher,
      signal,
      headersTimeout: idleMs,
      bodyTimeout: idleMs,
      headers: {
        "user-agent": "clipstack",
        accept: "*/*",
        // a length and a range are those of the file only where it is sent as it is
        "accept-encoding": "identity",
        ...range,
        ...(secret !== undefined && { authorization: `Bearer ${secret}` }),
      },
    });
    // an answer that nobody reads may still fail
    response.body.on("error", () => {});
    const header = (name: string) => {
      const value = response.headers[name];
      return Array.isArray(value) ? value[0] : value;
    };
    checkAnnounced(options, header);
    const { statusCode: status } = response;
    if ([301, 302, 303, 307, 308].includes(status)) {
      // whatever comes with it is not waited for
      response.body.destroy();
      if (left === 0) throw new Refused(`must end after ${maxRedirects} redirects`);
      url = nextOf(url, header("location"));
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
    throw refusalOf(status, header("retry-after"), url, hint);
  }
}

/** The hub says before it leads elsewhere what the file is. */
function checkAnnounced(
  { sha256, bytes }: DownloadOptions,
  header: (name: string) => string | undefined,
): void {
  const announced = header("x-linked-etag")?.replace(/^(W\/)?"(.*)"$/, "$2");
  if (sha256 !== undefined && announced !== undefined && /^[0-9a-f]{64}$/.test(announced)) {
    if (announced !== sha256) throw new Refused(`sha256 must be ${sha256}, has ${announced}`);
  }
  const size = header("x-linked-size");
  if (bytes !== undefined && size !== undefined && Number(size) !== bytes) {
    throw new Refused(`must have ${bytes} bytes, got ${size}`);
  }
}

function nextOf(from: URL, location: string | undefined): URL {
  const next =
    location !== undefined && URL.canParse(location, from.href)
      ? new URL(location, from)
      : undefined;
  const plain = next !== undefined && next.username === "" && next.password === "";
  if (!plain || !/^https?:$/.test(next.protocol)) {
    throw new Refused("must lead to http://… or https://… without a user or a password");
  }
  if (from.protocol === "https:" && next.protocol === "http:") {
    throw new Refused(`must not lead from https to http, got ${redactedUrl(next)}`);
  }
  return next;
}

/** What an answer that has no file means. */
function refusalOf(status: number, retryAfter: string | undefined, url: URL, hint: string): Error {
  const answered = `${url.host} answered ${status}`;
  if (status === 408 || status === 429 || status >= 500) {
    return new Interrupted(answered, 0, waitOf(retryAfter));
  }
  return new Refused(status === 401 || status === 403 ? `${answered}${hint}` : answered);
}

/** Seconds, or a date. */
function waitOf(retryAfter: string | undefined): number | undefined {
  if (retryAfter === undefined) return undefined;
  if (/^\d+$/.test(retryAfter)) return Number(retryAfter) * 1000;
  const at = Date.parse(retryAfter);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

/** Of an error of the network: whether another try can help. */
function meaningOf(error: unknown, have: number): unknown {
  if (error instanceof Interrupted) return error;
  if (error instanceof Refused) return error;
  const { code = "", message } = rootOf(error);
  if (error instanceof errors.HTTPParserError) {
    return new Refused(`the answer is not HTTP: ${message}`);
  }
  const ofProxy = /^Proxy response \((\d+)\)/.exec(message)?.[1];
  if (ofProxy !== undefined) {
    const answered = `the proxy answered ${ofProxy}`;
    return Number(ofProxy) >= 500 ? new Interrupted(answered, have) : new Refused(answered);
  }
  if (message.startsWith("Proxy Authentication Required")) {
    return new Refused("the proxy answered 407");
  }
  if (permanent.test(code)) return new Refused(`cannot be reached: ${message}`);
  if (ofNetwork.test(code)) return new Interrupted(`the connection failed: ${message}`, have);
  return error;
}

/** A host that does not exist; a certificate that is not trusted. */
const permanent =
  /^(ENOTFOUND|UND_ERR_INVALID|ERR_TLS|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_SSL|ERR_INVALID)/;
const ofNetwork =
  /^(UND_ERR|HPE_|ECONN|EPIPE|ETIMEDOUT|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ENETDOWN|ESOCKET)/;

function rootOf(error: unknown): { readonly code?: string; readonly message: string } {
  if (!(error instanceof Error)) return { message: String(error) };
  const inner = error instanceof AggregateError ? error.errors[0] : undefined;
  const { code, message } = error as NodeJS.ErrnoException;
  if (inner instanceof Error) return { code: code ?? rootOf(inner).code, message: inner.message };
  return { code, message };
}

/** Without its query: a signed address has a secret there. */
export function redactedUrl({ origin, pathname }: URL): string {
  return `${origin}${pathname}`;
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
