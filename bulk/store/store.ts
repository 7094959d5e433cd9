import type { Readable } from "node:stream";

/** Object of a {@link Store}. */
export interface StoredObject {
  /** Path below the store's address, with `/` between its parts. */
  readonly key: string;
  readonly bytes: number;
  /** Changes whenever the content does. */
  readonly etag: string;
}

/** Folder, or bucket with a prefix: where images come from, and where a job keeps its files. */
export interface Store {
  /** Absolute path, or `s3://bucket/prefix` without a slash at the end. */
  readonly address: string;
  /** Lists the objects whose key begins with `prefix`, ordered by key. */
  list(prefix?: string): AsyncIterable<StoredObject>;
  /**
   * @param etag - Required version; empty: any.
   * @throws {StoreError} `missing`, or `changed` if the object has another etag
   */
  read(key: string, etag?: string): Promise<Uint8Array>;
  /** Opens an object for reading in one pass. @throws {StoreError} as {@link read}; the stream fails if it is interrupted */
  stream(key: string, etag?: string): Promise<Readable>;
  /** Writes an object, which appears as a whole or not at all, and replaces an older one. */
  write(key: string, content: Uint8Array | string): Promise<void>;
  /** As {@link write}, unless the object exists. @returns Whether it was written. */
  create(key: string, content: Uint8Array | string): Promise<boolean>;
  /** Removes an object, if it exists. */
  remove(key: string): Promise<void>;
}

export type StoreErrorCode =
  | "missing"
  | "changed"
  | "denied"
  /** The store does not respond or throttles. */
  | "unavailable"
  /** The credentials are missing, invalid or expired. */
  | "credentials"
  | "full";

/** Branch on `code`. `credentials`, `full` and a persistent `unavailable` concern all objects, the others one. */
export class StoreError extends Error {
  override readonly name = "StoreError";

  constructor(
    readonly code: StoreErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Reads a UTF-8 text; undefined if the object does not exist. */
export async function readText(store: Store, key: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await store.read(key));
  } catch (error) {
    if (error instanceof StoreError && error.code === "missing") return undefined;
    throw error;
  }
}
