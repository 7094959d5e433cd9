import { realpath, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { resolve, sep } from "node:path";
import { DedupeError, pathProblem, systemReason } from "./dedupe-error.ts";
import { cameBack, isRejected } from "./moved-photos.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import { type PhotoFacts, readPhoto } from "./read-photo.ts";
import { runBounded } from "./run-bounded.ts";
import { walkPhotos } from "./walk-photos.ts";

export interface ScanOptions {
  readonly folder: string;
  /**
   * Photos that are read at once.
   *
   * @default - one for each core
   */
  readonly concurrency?: number;
  readonly progress?: Progress;
  /** Told of each file and folder that is passed over. */
  readonly onSkipped?: (skipped: Skipped) => void;
  /** Ends the scan early; what was read is kept. */
  readonly signal?: AbortSignal;
}

/** A file or folder that was passed over, and why. */
export interface Skipped {
  readonly path: string;
  readonly problem: string;
}

export interface ScanResult {
  /** Photos that were read now. */
  readonly read: number;
  /** Photos that have the size and time that they had. */
  readonly unchanged: number;
  /** Photos of this folder that are there no more. */
  readonly gone: number;
  readonly unreadable: number;
  /** Folders that could not be listed: what is known of their photos is kept. */
  readonly closedFolders: number;
  readonly links: number;
  /** HEIC files, where this build cannot decode them. */
  readonly heic: number;
  /** One of them, for a person to see which they are. */
  readonly heicExample: string | undefined;
  /** The signal ended it before the end. */
  readonly stopped: boolean;
}

interface KnownPhoto {
  readonly bytes: number;
  readonly mtime_ms: number;
  readonly id: number;
  readonly state: string;
  readonly md5: string | null;
}

interface SeenPhoto {
  readonly path: string;
  readonly bytes: number;
  readonly mtimeMs: number;
  readonly outcome: "unchanged" | PhotoFacts | Error;
}

/** Photos that are written in one transaction. */
const transactionSize = 200;

/**
 * Read every photo of a folder that is new or has changed into the database. Nothing about a file ends the scan: what
 * cannot be read is listed.
 *
 * @throws {DedupeError} when the folder itself cannot be read
 */
export async function scan(database: PhotoDatabase, options: ScanOptions): Promise<ScanResult> {
  const { concurrency = availableParallelism(), progress = openProgress() } = options;
  const { onSkipped = () => {}, signal } = options;
  const root = await scannedFolder(options.folder);
  const seen = Number(readSetting(database, "scan") ?? 0) + 1;
  writeSetting(database, "scan", String(seen));

  const closedFolders: string[] = [];
  const counts = { read: 0, unchanged: 0, unreadable: 0, link: 0, heic: 0 };
  let heicExample: string | undefined;
  let waiting: SeenPhoto[] = [];

  const flush = () => {
    const photos = waiting;
    waiting = [];
    database.transaction(() => {
      for (const photo of photos) writePhoto(database, root, seen, photo);
    });
  };

  await runBounded(walkPhotos(root), concurrency, async (found) => {
    if (signal?.aborted) return;
    if (found.kind === "closed-folder") {
      closedFolders.push(found.path);
      onSkipped({ path: found.path, problem: `cannot be listed: ${found.problem}` });
      return;
    }
    if (found.kind !== "photo") {
      counts[found.kind]++;
      if (found.kind === "heic") heicExample ??= found.path;
      return;
    }
    if (isRejected(database, found.path)) return;
    const photo = await look(database, found.path);
    if (photo.outcome === "unchanged") counts.unchanged++;
    else if (photo.outcome instanceof Error) {
      counts.unreadable++;
      onSkipped({ path: photo.path, problem: photo.outcome.message });
    } else counts.read++;
    waiting.push(photo);
    if (waiting.length >= transactionSize) flush();
    progress.update(
      () =>
        `${counts.read} read, ${counts.unchanged} unchanged, ${counts.unreadable} cannot be read`,
    );
  });
  flush();
  const stopped = signal?.aborted === true;
  const gone = stopped ? 0 : markGone(database, root, seen, closedFolders);
  progress.end();
  const { read, unchanged, unreadable, link: links, heic } = counts;
  return {
    read,
    unchanged,
    gone,
    unreadable,
    closedFolders: closedFolders.length,
    links,
    heic,
    heicExample,
    stopped,
  };
}

/** The folder's own path: the same photo has one path, whichever way the folder was named. */
async function scannedFolder(folder: string): Promise<string> {
  try {
    const path = await realpath(resolve(folder));
    if ((await stat(path)).isDirectory()) return path;
  } catch (cause) {
    throw new DedupeError("usage", `folder '${folder}' ${systemReason(cause)}`, { cause });
  }
  throw new DedupeError("usage", `folder '${folder}' is not a folder`);
}

async function look(database: PhotoDatabase, path: string): Promise<SeenPhoto> {
  try {
    const { size: bytes, mtimeMs } = await stat(path);
    const known = database.get<KnownPhoto>(
      "SELECT id, bytes, mtime_ms, state, md5 FROM photos WHERE path = ?",
      [path],
    );
    const same = known?.bytes === bytes && known.mtime_ms === mtimeMs;
    if (same && known.md5 !== null) {
      if (known.state === "moved") await cameBack(database, known.id);
      return { path, bytes, mtimeMs, outcome: "unchanged" };
    }
    const outcome = await readPhoto(path, bytes).catch((error) => problemOf(path, error));
    return { path, bytes, mtimeMs, outcome };
  } catch (error) {
    return { path, bytes: 0, mtimeMs: 0, outcome: problemOf(path, error) };
  }
}

/** One line, without the path that the system puts in. */
function problemOf(path: string, error: unknown): Error {
  const reason = pathProblem(path, error);
  return new Error(reason.startsWith("is ") ? reason : `cannot be read: ${reason}`);
}

function writePhoto(database: PhotoDatabase, root: string, seen: number, photo: SeenPhoto): void {
  const { path, bytes, mtimeMs, outcome } = photo;
  if (outcome === "unchanged") {
    database.run("UPDATE photos SET root = ?, seen = ?, state = 'present' WHERE path = ?", [
      root,
      seen,
      path,
    ]);
    return;
  }
  const facts = outcome instanceof Error ? undefined : outcome;
  const problem = outcome instanceof Error ? outcome.message : null;
  database.run(
    `INSERT INTO photos
       (path, root, bytes, mtime_ms, seen, state, problem, md5, hash, format, width, height, taken_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (path) DO UPDATE SET
       root = excluded.root, bytes = excluded.bytes, mtime_ms = excluded.mtime_ms, seen = excluded.seen,
       state = excluded.state, problem = excluded.problem, md5 = excluded.md5, hash = excluded.hash,
       format = excluded.format, width = excluded.width, height = excluded.height,
       taken_at = excluded.taken_at`,
    [
      path,
      root,
      bytes,
      mtimeMs,
      seen,
      facts === undefined ? "unreadable" : "present",
      problem,
      facts?.md5 ?? null,
      facts?.hash ?? null,
      facts?.format ?? null,
      facts?.width ?? null,
      facts?.height ?? null,
      facts?.takenAt ?? null,
    ],
  );
}

/** Photos that this scan should have seen and did not. Those under a folder that could not be listed are left as they are. */
function markGone(
  database: PhotoDatabase,
  root: string,
  seen: number,
  closedFolders: readonly string[],
): number {
  const prefix = root.endsWith(sep) ? root : `${root}${sep}`;
  const closed = closedFolders.map((path) => `${path}${sep}`);
  return database.transaction(() => {
    let gone = 0;
    let after = 0;
    for (;;) {
      // the length is SQLite's: JavaScript counts some characters as two
      const unseen = database.all<{ readonly id: number; readonly path: string }>(
        `SELECT id, path FROM photos
         WHERE id > ? AND seen < ? AND state IN ('present', 'unreadable') AND substr(path, 1, length(?)) = ?
         ORDER BY id LIMIT 1000`,
        [after, seen, prefix, prefix],
      );
      if (unseen.length === 0) return gone;
      for (const { id, path } of unseen) {
        after = id;
        if (closed.some((folder) => path.startsWith(folder))) continue;
        database.run("UPDATE photos SET state = 'gone' WHERE id = ?", [id]);
        gone++;
      }
    }
  });
}
