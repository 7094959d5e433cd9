import { parse } from "csv-parse/sync";
import { extract } from "tar-stream";
import { UserError } from "../../contract/user-error.ts";
import { openStore } from "../store/open-store.ts";
import { type Store, StoreError } from "../store/store.ts";
import { parquetTable } from "../table/arrow-parquet.ts";
import type { ManifestEntry } from "./job.ts";

const imageFile = /\.(jpe?g|png|webp)$/i;
const tarFile = /\.tar$/i;
/** Times that a tar file is opened again after an interruption. */
const maxReopens = 5;

/** All Parquet files of a folder, as in SQL. */
const tableSuffix = "/*.parquet";

/** Source that is the table of a job: the images that have a row. */
export const tableSource = (job: string) => `${job.replace(/\/$/, "")}/parts${tableSuffix}`;

/**
 * Lists the images and tar files of a folder or `s3://bucket/prefix`, the rows of a CSV or Parquet file of URIs, or those of all
 * Parquet files of a folder (`…/*.parquet`).
 */
export async function* listSource(source: string): AsyncGenerator<ManifestEntry> {
  if (/\.(csv|parquet)$/i.test(source)) {
    yield* listedUris(source);
    return;
  }
  const store = await openStore(source);
  const base = store.address.replace(/\/$/, "");
  for await (const { key, bytes, etag } of store.list()) {
    if (imageFile.test(key) || tarFile.test(key)) yield { uri: `${base}/${key}`, bytes, etag };
  }
}

/** Rows with a column `uri` or `url`, and optionally `etag`; without it, a changed image is not noticed. */
async function* listedUris(source: string): AsyncGenerator<ManifestEntry> {
  const seen = new Set<string>();
  if (!source.endsWith(tableSuffix)) {
    yield* urisIn(source, await openSourceReader(0).read({ uri: source, etag: "" }), seen);
    return;
  }
  const store = await openStore(source.slice(0, -tableSuffix.length));
  for await (const { key } of store.list()) {
    if (/^[^/]+\.parquet$/i.test(key)) {
      yield* urisIn(`${store.address}/${key}`, await store.read(key), seen);
    }
  }
}

function* urisIn(source: string, content: Uint8Array, seen: Set<string>): Generator<ManifestEntry> {
  const rows: readonly Readonly<Record<string, unknown>>[] = /\.csv$/i.test(source)
    ? parse(Buffer.from(content), { columns: true, skip_empty_lines: true, bom: true })
    : parquetTable(content).toArray();
  const column = ["uri", "url"].find((name) => rows[0] === undefined || name in rows[0]);
  if (column === undefined) throw new UserError(`${source}: must have a column uri or url`);
  for (const row of rows) {
    // a member of a tar file stands for the file
    const uri = String(row[column] ?? "").replace(/(\.tar)#.*$/is, "$1");
    if (!/^(\/|s3:\/\/[^/]+\/|https?:\/\/)/.test(uri)) {
      throw new UserError(
        `${source}: ${column} must be an absolute path, s3://… or https://…, got '${uri}'`,
      );
    }
    if (seen.has(uri)) continue;
    seen.add(uri);
    yield { uri, bytes: 0, etag: String(row.etag ?? "") };
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

/** @param patienceSeconds - As in {@link openStore}. */
export function openSourceReader(patienceSeconds: number): SourceReader {
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
    if (/^https?:/.test(uri)) return await download(uri);
    const { store, key } = await located(uri);
    return await store.read(key, etag);
  };
  return {
    read,
    async *images(entry) {
      if (!tarFile.test(entry.uri)) {
        yield { uri: entry.uri, bytes: entry.bytes, read: () => read(entry) };
        return;
      }
      const { store, key } = await located(entry.uri);
      yield* tarImages(entry.uri, () => store.stream(key, entry.etag));
    },
  };
}

/** Reads the images of a tar file in order. After an interruption the file is opened again. */
async function* tarImages(
  uri: string,
  open: () => ReturnType<Store["stream"]>,
): AsyncGenerator<SourceImage> {
  let yielded = 0;
  for (let reopens = 0; ; reopens++) {
    const stream = await open();
    const tar = extract();
    let index = 0;
    stream.on("error", (error) => tar.destroy(error)).pipe(tar);
    try {
      for await (const member of tar) {
        const { name, type } = member.header;
        const isImage = type === "file" && imageFile.test(name);
        index += isImage ? 1 : 0;
        if (!isImage || index <= yielded) {
          member.resume();
          continue;
        }
        const chunks: Buffer[] = [];
        for await (const chunk of member) chunks.push(chunk as Buffer);
        const content = Buffer.concat(chunks);
        yielded = index;
        yield { uri: `${uri}#${name}`, bytes: content.length, read: async () => content };
      }
      return;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      // without a code the content is invalid
      if (code === undefined)
        throw new StoreError("changed", `${uri}: is not a valid tar file: ${message}`);
      if (reopens === maxReopens)
        throw new StoreError("unavailable", `${uri}: cannot be read: ${code}`);
    } finally {
      stream.destroy();
    }
  }
}

async function download(uri: string): Promise<Uint8Array> {
  try {
    const response = await fetch(uri, { signal: AbortSignal.timeout(60_000) });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new StoreError("missing", `cannot be downloaded: ${(error as Error).message}`);
  }
}
