import { Readable } from "node:stream";
import { parse } from "csv-parse/sync";
import { extract } from "tar-stream";
import { messageOf, UserError } from "../../contract/user-error.ts";
import { ImageError } from "../../inference/preprocess/preprocess.ts";
import { openStore } from "../store/open-store.ts";
import { withRetries } from "../store/retry.ts";
import { type Store, StoreError } from "../store/store.ts";
import { parquetTable } from "../table/arrow-parquet.ts";
import type { ManifestEntry } from "./job.ts";

const imageFile = /\.(jpe?g|png|webp)$/i;
const tarFile = /\.tar$/i;
/** File or folder whose name begins with a dot, such as `._photo.jpg` of macOS. */
const hiddenFile = /(^|\/)\.(?!\.?\/)/;
const isImageName = (name: string) => imageFile.test(name) && !hiddenFile.test(name);
/** Times that a tar file is opened again after an interruption. */
const maxReopens = 5;
/** Time for which a web server that throttles or interrupts is tried again: it concerns only some images. */
const maxWebPatienceSeconds = 30;

/** All Parquet files of a folder, as in SQL. */
const tableSuffix = "/*.parquet";

/** Source that is the table of a job: the images that have a row. */
export const tableSource = (job: string) => `${job.replace(/\/$/, "")}/parts${tableSuffix}`;

/**
 * Lists the images and tar files of a folder or `s3://bucket/prefix`, the rows of a CSV or Parquet file of URIs, or those of all
 * Parquet files of a folder (`…/*.parquet`).
 *
 * @param patienceSeconds - As in {@link openStore}.
 */
export async function* listSource(
  source: string,
  patienceSeconds?: number,
): AsyncGenerator<ManifestEntry> {
  if (/\.(csv|parquet)$/i.test(source)) {
    yield* listedUris(source, patienceSeconds);
    return;
  }
  const store = await openStore(source, patienceSeconds);
  const base = store.address.replace(/\/$/, "");
  for await (const { key, bytes, etag } of store.list()) {
    if (isImageName(key) || (tarFile.test(key) && !hiddenFile.test(key)))
      yield { uri: `${base}/${key}`, bytes, etag };
  }
}

/** Rows with a column `uri` or `url`, and optionally `etag`; without it, a changed image is not noticed. */
async function* listedUris(
  source: string,
  patienceSeconds?: number,
): AsyncGenerator<ManifestEntry> {
  const seen = new Set<string>();
  if (!source.endsWith(tableSuffix)) {
    yield* urisIn(
      source,
      await openSourceReader(patienceSeconds).read({ uri: source, etag: "" }),
      seen,
    );
    return;
  }
  const store = await openStore(source.slice(0, -tableSuffix.length), patienceSeconds);
  for await (const { key } of store.list()) {
    if (/^[^/]+\.parquet$/i.test(key)) {
      yield* urisIn(`${store.address}/${key}`, await store.read(key), seen);
    }
  }
}

function* urisIn(source: string, content: Uint8Array, seen: Set<string>): Generator<ManifestEntry> {
  const rows = listedRows(source, content);
  const column = ["uri", "url"].find((name) => rows[0] === undefined || name in rows[0]);
  if (column === undefined) throw new UserError(`${source}: must have a column uri or url`);
  for (const row of rows) {
    // a member of a tar file stands for the file
    const uri = String(row[column] ?? "").replace(/(\.tar)#.*$/is, "$1");
    if (!/^(\/|s3:\/\/[a-z0-9][a-z0-9.-]+\/.|https?:\/\/)/.test(uri)) {
      throw new UserError(
        `${source}: ${column} must be an absolute path, s3://… or https://…, got '${uri}'`,
      );
    }
    if (seen.has(uri)) continue;
    seen.add(uri);
    yield { uri, bytes: 0, etag: String(row.etag ?? "") };
  }
}

function listedRows(
  source: string,
  content: Uint8Array,
): readonly Readonly<Record<string, unknown>>[] {
  const isCsv = /\.csv$/i.test(source);
  try {
    return isCsv
      ? parse(Buffer.from(content), { columns: true, skip_empty_lines: true, bom: true })
      : parquetTable(content).toArray();
  } catch (cause) {
    const [problem] = messageOf(cause).split("\n", 1);
    throw new UserError(`${source}: must be a ${isCsv ? "CSV" : "Parquet"} file: ${problem}`, {
      cause,
    });
  }
}

/** Image of a manifest entry. */
export interface SourceImage {
  /** `<uri>#<name>` for a member of a tar file. */
  readonly uri: string;
  readonly bytes: number;
  read(): Promise<Uint8Array>;
}

/** Reads images by URI. */
export interface SourceReader {
  /** @throws {StoreError} */
  read(entry: Pick<ManifestEntry, "uri" | "etag">): Promise<Uint8Array>;
  /** The images of an entry: itself, or the members of a tar file. @throws {StoreError} */
  images(entry: ManifestEntry): AsyncIterable<SourceImage>;
}

/**
 * @param patienceSeconds - As in {@link openStore}.
 * @param maxBytes - Size above which a file is not read.
 */
export function openSourceReader(
  patienceSeconds = 600,
  maxBytes = Number.POSITIVE_INFINITY,
): SourceReader {
  const stores = new Map<string, Promise<Store>>();
  /** Store and key of a URI. */
  const located = async (uri: string) => {
    const [, bucket, key] = /^(s3:\/\/[^/]+)\/(.+)$/s.exec(uri) ?? [];
    const address = bucket ?? "/";
    const store = stores.get(address) ?? openStore(address, patienceSeconds);
    stores.set(address, store);
    return { store: await store, key: key ?? uri.slice(1) };
  };
  const read: SourceReader["read"] = async ({ uri, etag }) => {
    if (isWeb(uri)) {
      return await download(
        uri,
        patienceSeconds,
        async (response) => new Uint8Array(await response.arrayBuffer()),
      );
    }
    const { store, key } = await located(uri);
    return await store.read(key, etag);
  };
  return {
    read,
    async *images(entry) {
      if (!tarFile.test(entry.uri)) {
        const image = async () => {
          requireSize(entry.bytes, maxBytes);
          return await read(entry);
        };
        yield { uri: entry.uri, bytes: entry.bytes, read: image };
        return;
      }
      yield* tarImages(entry.uri, maxBytes, async () => {
        if (isWeb(entry.uri)) return await download(entry.uri, patienceSeconds, webStream, dayMs);
        const { store, key } = await located(entry.uri);
        return await store.stream(key, entry.etag);
      });
    },
  };
}

function requireSize(bytes: number, maxBytes: number): void {
  if (bytes <= maxBytes) return;
  throw new ImageError("too_large", `has ${bytes} bytes, more than the limit of ${maxBytes}`);
}

/**
 * Reads the images of a tar file in order. After an interruption the file is opened again.
 *
 * @throws {ImageError} at the end if it is damaged, has no images or several of one name, of which the first is read
 */
async function* tarImages(
  uri: string,
  maxBytes: number,
  open: () => ReturnType<Store["stream"]>,
): AsyncGenerator<SourceImage> {
  const names = new Set<string>();
  let repeated: string | undefined;
  const invalid = (rule: string) => new ImageError("undecodable_image", `${uri}: ${rule}`);
  for (let reopens = 0; ; reopens++) {
    const stream = await open();
    const tar = extract({ allowUnknownFormat: true } as object);
    const namesSoFar = new Set<string>();
    stream.on("error", (error) => tar.destroy(error)).pipe(tar);
    try {
      for await (const member of tar) {
        const { name, type, size = 0 } = member.header;
        const isImage = type !== "directory" && isImageName(name);
        if (namesSoFar.has(name)) repeated ??= name;
        if (isImage) namesSoFar.add(name);
        if (!isImage || names.has(name)) {
          member.resume();
          continue;
        }
        const chunks: Buffer[] = [];
        const isFile = type === "file" || type === "contiguous-file";
        if (!isFile || size > maxBytes) member.resume();
        else for await (const chunk of member) chunks.push(chunk as Buffer);
        const content = Buffer.concat(chunks);
        names.add(name);
        const read = async () => {
          if (!isFile) throw invalid(`members must be files, got a ${type ?? "special one"}`);
          requireSize(size, maxBytes);
          return content;
        };
        yield { uri: `${uri}#${name}`, bytes: content.length, read };
      }
      break;
    } catch (error) {
      const { code = codeOfCause(error), message } = error as NodeJS.ErrnoException;
      // without a code the content is invalid
      if (code === undefined) throw invalid(`must be a tar file: ${message}`);
      if (reopens === maxReopens) {
        const concerned = isWeb(uri) ? "missing" : "unavailable";
        throw new StoreError(concerned, `${uri}: cannot be read: ${code}`);
      }
    } finally {
      stream.destroy();
    }
  }
  if (names.size === 0) throw invalid("must contain images, got none");
  if (repeated !== undefined) throw invalid(`names of images must differ, got '${repeated}' twice`);
}

const dayMs = 24 * 3_600_000;
const isWeb = (uri: string) => /^https?:/.test(uri);
const webStream = async ({ body }: Response) => Readable.fromWeb(body as never);
const codeOfCause = (error: unknown) =>
  ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code;

/** @param take - Reads the body; only what it reads is tried again. */
async function download<T>(
  uri: string,
  patienceSeconds: number,
  take: (response: Response) => Promise<T>,
  timeoutMs = 60_000,
): Promise<T> {
  let status = 0;
  const isTransient = (error: unknown) =>
    status === 429 || status >= 500 || /^(ECONNRESET|UND_ERR_)/.test(codeOfCause(error) ?? "");
  const attempt = async () => {
    const response = await fetch(uri, { signal: AbortSignal.timeout(timeoutMs) });
    status = response.status;
    if (!response.ok) throw new Error(`HTTP ${status}`);
    return await take(response);
  };
  try {
    return await withRetries(
      attempt,
      isTransient,
      Math.min(patienceSeconds, maxWebPatienceSeconds),
    );
  } catch (error) {
    const { message, cause } = error as Error;
    const problem = messageOf(cause ?? message);
    throw new StoreError("missing", `${uri}: cannot be downloaded: ${problem}`);
  }
}
