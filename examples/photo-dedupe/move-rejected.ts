import { lstatSync, type Stats } from "node:fs";
import { lstat, mkdir, rename } from "node:fs/promises";
import { dirname, join, parse, relative } from "node:path";
import { reasonOf } from "../search/report.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { rejectedFolderName } from "./scan.ts";

export interface MoveResult {
  readonly moved: number;
  /** Photos left in place, with the reason. */
  readonly problems: readonly { readonly path: string; readonly problem: string }[];
}

interface IndexedPhoto {
  readonly id: number;
  readonly path: string;
  readonly root: string;
  readonly bytes: number;
  readonly mtime_ms: number;
  readonly position: number;
}

/** SQL condition for the photos to move. */
const isRejected = "position IS NOT NULL AND decision = 'reject' AND state = 'present'";

interface MovedPhoto {
  readonly id: number;
  readonly path: string;
  readonly moved_to: string;
}

/**
 * Moves the rejected photos of the groups into `clipstack-rejected` of the scanned folder, in folders of the same names.
 * Deletes and overwrites nothing. A photo stays if it has changed since the scan, or if no kept photo of its group is unchanged
 * on the disk, because it could be the last copy.
 *
 * @param signal - Stops after the current photo when aborted.
 */
export async function moveRejected(
  database: PhotoDatabase,
  signal?: AbortSignal,
): Promise<MoveResult> {
  const photos = database.all<IndexedPhoto>(
    `SELECT id, path, root, bytes, mtime_ms, position FROM photos
     WHERE ${isRejected} ORDER BY path`,
  );
  return forEach(photos, signal, async (photo) => {
    // decisions may change while others are moved
    if (!database.get(`SELECT 1 FROM photos WHERE id = ? AND ${isRejected}`, photo.id)) {
      throw new Error("is no longer rejected");
    }
    if (!(await statsAsScanned(photo))) throw new Error("has changed since the scan: scan again");
    if (!(await hasKeptCopy(database, photo))) {
      throw new Error(
        "the photos of its group that are kept are not on the disk as scanned: scan and group again",
      );
    }
    const { id, path, root } = photo;
    const target = freeName(join(root, rejectedFolderName, relative(root, path)));
    await mkdir(dirname(target), { recursive: true });
    // before the rename: after a crash, the next scan recognises a photo that was not moved
    database.run("UPDATE photos SET state = 'moved', moved_to = ? WHERE id = ?", target, id);
    try {
      await rename(path, target);
    } catch (error) {
      database.run("UPDATE photos SET state = 'present', moved_to = NULL WHERE id = ?", id);
      throw error;
    }
  });
}

/**
 * Moves photos back. Existing files of the same name are not overwritten.
 *
 * @param only - Id of one photo; without it, all moved photos.
 */
export async function restore(
  database: PhotoDatabase,
  { only, signal }: { readonly only?: number; readonly signal?: AbortSignal } = {},
): Promise<MoveResult> {
  const photos = database
    .all<MovedPhoto>("SELECT id, path, moved_to FROM photos WHERE state = 'moved' ORDER BY path")
    .filter(({ id }) => only === undefined || id === only);
  return forEach(photos, signal, async ({ id, path, moved_to: source }) => {
    if (exists(source)) {
      if (exists(path)) {
        throw new Error(`there is another file of this name; the photo stays at '${source}'`);
      }
      await mkdir(dirname(path), { recursive: true });
      await rename(source, path);
    } else if (!exists(path)) throw new Error(`'${source}' does not exist`);
    database.run(
      "UPDATE photos SET state = 'present', moved_to = NULL, decision = NULL WHERE id = ?",
      id,
    );
  });
}

async function forEach<Photo extends { readonly path: string }>(
  photos: readonly Photo[],
  signal: AbortSignal | undefined,
  move: (photo: Photo) => Promise<void>,
): Promise<MoveResult> {
  const problems: { path: string; problem: string }[] = [];
  let moved = 0;
  for (const photo of photos) {
    if (signal?.aborted) break;
    try {
      await move(photo);
      moved++;
    } catch (error) {
      problems.push({ path: photo.path, problem: reasonOf(error) });
    }
  }
  return { moved, problems };
}

/** Returns the file's stats; `undefined` if it has changed since the scan or no longer exists. */
async function statsAsScanned({ path, bytes, mtime_ms }: IndexedPhoto): Promise<Stats | undefined> {
  const stats = await lstat(path).catch(() => undefined);
  const same = stats?.isFile() && stats.size === bytes && stats.mtimeMs === mtime_ms;
  return same ? stats : undefined;
}

/** Photos read at a time: usually the first one is on the disk, and a group may have thousands. */
const othersPerQuery = 100;

/** Returns whether a kept photo of the group is unchanged on the disk; also true if all are rejected, as the page warns. */
async function hasKeptCopy(database: PhotoDatabase, photo: IndexedPhoto): Promise<boolean> {
  const own = await lstat(photo.path);
  for (let first = 0; ; first += othersPerQuery) {
    const others = database.all<IndexedPhoto>(
      `SELECT id, path, root, bytes, mtime_ms, position FROM photos
       WHERE position = ? AND id <> ? AND state = 'present' AND decision IS NOT 'reject'
       ORDER BY decision IS NULL, id LIMIT ? OFFSET ?`,
      photo.position,
      photo.id,
      othersPerQuery,
      first,
    );
    if (others.length === 0) return first === 0;
    for (const other of others) {
      const stats = await statsAsScanned(other);
      // another path of the same file, as in a folder that is mounted twice, is no copy
      if (stats && (stats.dev !== own.dev || stats.ino !== own.ino)) return true;
    }
  }
}

/** Returns a free name: `photo.jpg`, `photo (2).jpg`, … */
function freeName(wanted: string): string {
  const { dir, name, ext } = parse(wanted);
  for (let n = 1; ; n++) {
    const candidate = join(dir, n === 1 ? `${name}${ext}` : `${name} (${n})${ext}`);
    if (!exists(candidate)) return candidate;
  }
}

/** Unlike `existsSync`, returns true for a dangling link, which a rename would replace. */
function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}
