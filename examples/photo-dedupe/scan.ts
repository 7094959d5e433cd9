import { existsSync } from "node:fs";
import { opendir, realpath, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { extname, join, resolve, sep } from "node:path";
import pMap from "p-map";
import { DedupeError, reasonOf } from "./dedupe-error.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import { type PhotoFacts, readPhoto } from "./read-photo.ts";

export interface ScanOptions {
  readonly folder: string;
  /** Receives a line for each file and folder that cannot be read. */
  readonly progress?: Progress;
  /** Ends the scan early; the index keeps the photos read so far. */
  readonly signal?: AbortSignal;
}

export interface ScanResult {
  /** Photos read now. */
  readonly read: number;
  /** Photos whose size and time have not changed. */
  readonly unchanged: number;
  /** Photos of this folder that no longer exist. */
  readonly gone: number;
  readonly unreadable: number;
  /** Folders that could not be listed; if there are any, no photo is marked as gone. */
  readonly closedFolders: number;
  /** Whether the signal ended the scan early. */
  readonly stopped: boolean;
}

interface KnownPhoto {
  readonly bytes: number;
  readonly mtime_ms: number;
  readonly state: string;
  readonly moved_to: string | null;
}

/** Folder into which rejected photos are moved; never scanned. */
export const rejectedFolderName = "clipstack-rejected";

const extensions: ReadonlySet<string> = new Set([
  ".jpg",
  ".jpeg",
  ".jpe",
  ".jfif",
  ".png",
  ".webp",
  ".heic",
  ".heif",
]);

/**
 * Reads new and changed photos of a folder into the index. A file that cannot be read is reported and does not end the scan.
 * Links are not followed.
 *
 * @throws {DedupeError} if the folder itself cannot be read
 */
export async function scan(database: PhotoDatabase, options: ScanOptions): Promise<ScanResult> {
  const { progress = openProgress(), signal } = options;
  const root = await scannedFolder(options.folder);
  const seen = (readSetting<number>(database, "scan") ?? 0) + 1;
  writeSetting(database, "scan", seen);
  const counts = { read: 0, unchanged: 0, unreadable: 0, closedFolders: 0 };

  async function* photosIn(folder: string): AsyncGenerator<string> {
    try {
      for await (const entry of await opendir(folder)) {
        if (signal?.aborted) return;
        const path = join(folder, entry.name);
        if (entry.isDirectory()) {
          if (entry.name !== rejectedFolderName) yield* photosIn(path);
        } else if (entry.isFile() && extensions.has(extname(entry.name).toLowerCase())) yield path;
      }
    } catch (error) {
      counts.closedFolders++;
      progress.note(`${folder}: cannot be listed: ${reasonOf(error)}`);
    }
  }

  await pMap(
    photosIn(root),
    async (path) => {
      const outcome = await scanPhoto(database, { path, root, seen });
      if (outcome instanceof Error) progress.note(`${path}: cannot be read: ${reasonOf(outcome)}`);
      counts[outcome instanceof Error ? "unreadable" : outcome]++;
      const { read, unchanged, unreadable } = counts;
      progress.update(`${read} read, ${unchanged} unchanged, ${unreadable} cannot be read`);
    },
    { concurrency: availableParallelism() },
  );
  progress.end();
  const stopped = signal?.aborted === true;
  const complete = !stopped && counts.closedFolders === 0;
  return { ...counts, gone: complete ? markGone(database, root, seen) : 0, stopped };
}

/** Canonical path of the folder, so that a photo has one path however the folder is named. */
async function scannedFolder(folder: string): Promise<string> {
  try {
    const path = await realpath(resolve(folder));
    await (await opendir(path)).close();
    return path;
  } catch (cause) {
    throw new DedupeError("usage", `folder '${folder}': ${reasonOf(cause)}`, { cause });
  }
}

/** Reads a photo into the index unless it is unchanged. Returns the error if it cannot be read. */
async function scanPhoto(
  database: PhotoDatabase,
  photo: { readonly path: string; readonly root: string; readonly seen: number },
): Promise<"read" | "unchanged" | Error> {
  const { path, root, seen } = photo;
  const known = database.get<KnownPhoto>(
    "SELECT bytes, mtime_ms, state, moved_to FROM photos WHERE path = ?",
    path,
  );
  if (known?.state === "moved") {
    if (existsSync(known.moved_to ?? "")) {
      return new Error(`a photo of this name was moved to '${known.moved_to}': rename this one`);
    }
    // restored manually
    database.run(
      "UPDATE photos SET state = 'present', moved_to = NULL, decision = NULL WHERE path = ?",
      path,
    );
  }
  try {
    const { size, mtimeMs } = await stat(path);
    const same = known?.bytes === size && known.mtime_ms === mtimeMs;
    if (same && known.state !== "unreadable") {
      database.run(
        "UPDATE photos SET root = ?, seen = ?, state = 'present' WHERE path = ?",
        root,
        seen,
        path,
      );
      return "unchanged";
    }
    const facts = await readPhoto(path).catch((error: Error) => error);
    writePhoto(database, { ...photo, bytes: size, mtimeMs, facts });
    return facts instanceof Error ? facts : "read";
  } catch (error) {
    return error as Error;
  }
}

interface WrittenPhoto {
  readonly path: string;
  readonly root: string;
  readonly seen: number;
  readonly bytes: number;
  readonly mtimeMs: number;
  readonly facts: PhotoFacts | Error;
}

function writePhoto(database: PhotoDatabase, photo: WrittenPhoto): void {
  const facts = photo.facts instanceof Error ? undefined : photo.facts;
  database.run(
    `INSERT INTO photos
       (path, root, bytes, mtime_ms, seen, state, md5, hash, format, width, height, taken_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (path) DO UPDATE SET
       root = excluded.root, bytes = excluded.bytes, mtime_ms = excluded.mtime_ms, seen = excluded.seen,
       state = excluded.state, md5 = excluded.md5, hash = excluded.hash, format = excluded.format,
       width = excluded.width, height = excluded.height, taken_at = excluded.taken_at,
       position = iif(md5 IS excluded.md5, position, NULL),
       decision = iif(md5 IS excluded.md5, decision, NULL)`,
    photo.path,
    photo.root,
    photo.bytes,
    photo.mtimeMs,
    photo.seen,
    facts === undefined ? "unreadable" : "present",
    facts?.md5 ?? null,
    facts?.hash ?? null,
    facts?.format ?? null,
    facts?.width ?? null,
    facts?.height ?? null,
    facts?.takenAt ?? null,
  );
}

/** Marks photos of the folder that this scan did not find. */
function markGone(database: PhotoDatabase, root: string, seen: number): number {
  const prefix = root.endsWith(sep) ? root : `${root}${sep}`;
  // SQLite computes the length, because JavaScript counts some characters as two
  return database.run(
    `UPDATE photos SET state = 'gone'
     WHERE seen < ? AND state IN ('present', 'unreadable') AND substr(path, 1, length(?)) = ?`,
    seen,
    prefix,
    prefix,
  );
}
