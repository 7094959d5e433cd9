import { UserError } from "../../contract/user-error.ts";
import { openStore } from "../store/open-store.ts";
import { type Store, StoreError } from "../store/store.ts";
import type { ManifestEntry } from "./job.ts";

const imageFile = /\.(jpe?g|png|webp)$/i;

/** Lists the images of a folder or `s3://bucket/prefix`. */
export async function* listSource(source: string): AsyncGenerator<ManifestEntry> {
  const store = await openStore(source);
  const base = store.address.replace(/\/$/, "");
  for await (const { key, bytes, etag } of store.list()) {
    if (imageFile.test(key)) yield { uri: `${base}/${key}`, bytes, etag };
  }
}

/** Reads images by URI. */
export interface SourceReader {
  /** @throws {StoreError} */
  read(entry: Pick<ManifestEntry, "uri" | "etag">): Promise<Uint8Array>;
}

/** @param patienceSeconds - As in {@link openStore}. */
export function openSourceReader(patienceSeconds: number): SourceReader {
  const buckets = new Map<string, Promise<Store>>();
  const storeOf = (address: string) => {
    const store = buckets.get(address) ?? openStore(address, patienceSeconds);
    buckets.set(address, store);
    return store;
  };
  return {
    async read({ uri, etag }) {
      if (/^https?:/.test(uri)) return await download(uri);
      const [, bucket, key] = /^(s3:\/\/[^/]+)\/(.+)$/s.exec(uri) ?? [];
      if (bucket !== undefined && key !== undefined) {
        return await (await storeOf(bucket)).read(key, etag);
      }
      if (!uri.startsWith("/")) {
        throw new StoreError(
          "missing",
          `must be an absolute path, s3:// or https://, got '${uri}'`,
        );
      }
      return await (await storeOf("/")).read(uri.slice(1), etag);
    },
  };
}

async function download(uri: string): Promise<Uint8Array> {
  try {
    const response = await fetch(uri, { signal: AbortSignal.timeout(60_000) });
    if (!response.ok) throw new UserError(`HTTP ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new StoreError("missing", `cannot be downloaded: ${(error as Error).message}`);
  }
}
