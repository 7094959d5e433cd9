import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { partBytes } from "../../bulk/table/part.ts";
import { jobOf } from "./embeddings.ts";
import type { PhotoDatabase } from "./photo-database.ts";

export interface IndexedPhoto {
  readonly path: string;
  /** @default - the path: a content of its own */
  readonly sha256?: string;
  /** @default "00ff00ff00ff00ff" */
  readonly hash?: string;
  /** Embedding, of any norm; undefined: none. */
  readonly vector?: readonly number[];
}

export const indexedModel = "example";

/** Adds photos that exist only in the index, and their embeddings as a part of a table. The first photo of a content must have its smallest path. */
export function addPhotos(database: PhotoDatabase, photos: readonly IndexedPhoto[], root = "/") {
  const uris = new Map<string, string>();
  const rows = photos.flatMap(({ path, sha256 = path, hash = "00ff00ff00ff00ff", vector }) => {
    database.run(
      `INSERT INTO photos (path, root, bytes, mtime_ms, state, seen, sha256, hash, format, width, height)
       VALUES (?, ?, 1, 1, 'present', 1, ?, ?, 'jpeg', 1, 1)`,
      path,
      root,
      sha256,
      hash,
    );
    if (vector === undefined || uris.has(sha256)) return [];
    uris.set(sha256, path);
    const norm = Math.hypot(...vector);
    const embedding = Float32Array.from(vector, (value) => value / norm);
    return [{ uri: path, etag: "1-rs", sha256, width: 1, height: 1, embedding }];
  });
  const parts = join(jobOf(database, indexedModel), "parts");
  if (rows.length === 0) return;
  mkdirSync(parts, { recursive: true });
  const facts = { fingerprint: "f", model: indexedModel, vectors: "float32" } as const;
  const file = `${String(readdirSync(parts).length).padStart(6, "0")}.parquet`;
  writeFileSync(join(parts, file), partBytes(rows, { ...facts, width: rows[0]!.embedding.length }));
}
