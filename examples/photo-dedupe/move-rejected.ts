import { lstat, mkdir, open, realpath, rename } from "node:fs/promises";
import { dirname, join, parse, relative } from "node:path";
import { systemReason } from "./dedupe-error.ts";
import {
  forgetMove,
  isThere,
  type MovedPhoto,
  movedPhotosOf,
  removeEmpty,
} from "./moved-photos.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import type { Skipped } from "./scan.ts";
import { rejectedFolderName } from "./walk-photos.ts";

export interface MoveResult {
  readonly moved: number;
  /** Photos that stayed where they are, and why. */
  readonly problems: readonly Skipped[];
}

interface ReviewedPhoto {
  readonly id: number;
  readonly path: string;
  readonly root: string;
  readonly bytes: number;
  readonly mtime_ms: number;
  readonly position: number;
}

export interface MoveOptions {
  /**
   * Of rejected photos.
   *
   * @default - `clipstack-rejected` in the folder that was scanned
   */
  readonly folder?: string;
  /** Ends it after the photo that is being moved. */
  readonly signal?: AbortSignal;
}

/**
 * Move the rejected photos of the groups out of the way. Nothing is ever deleted or written over: a photo goes to the same
 * place below the folder of rejected photos, under a new name where there is one, and {@link restore} takes it back. A
 * photo stays when those of its group that are not rejected are not on the disk as they were scanned: it could be the last.
 */
export async function moveRejected(
  database: PhotoDatabase,
  { folder, signal }: MoveOptions = {},
): Promise<MoveResult> {
  const rejected = "FROM reviewed WHERE decision = 'reject' AND state = 'present'";
  const photos = database.all<ReviewedPhoto>(
    `SELECT id, path, root, bytes, mtime_ms, position ${rejected} ORDER BY path`,
  );
  const problems: Skipped[] = [];
  let moved = 0;
  for (const photo of photos) {
    if (signal?.aborted) break;
    // a person may have decided otherwise while others were moved
    if (database.get(`SELECT 1 ${rejected} AND id = ?`, [photo.id]) === undefined) continue;
    const problem = await movePhoto(
      database,
      photo,
      folder ?? join(photo.root, rejectedFolderName),
    );
    if (problem === undefined) moved++;
    else problems.push({ path: photo.path, problem });
  }
  return { moved, problems };
}

/** @returns Why it stayed, or `undefined`. */
async function movePhoto(
  database: PhotoDatabase,
  photo: ReviewedPhoto,
  folder: string,
): Promise<string | undefined> {
  const { id, path, root, bytes, mtime_ms } = photo;
  let target: string;
  try {
    if (!(await isAsScanned(photo))) return "has changed since the scan: scan again";
    const lastOne = await lastOneProblem(database, photo);
    if (lastOne !== undefined) return lastOne;
    const wanted = join(folder, relative(root, path));
    // a link to it is the same folder
    if ((await realpath(folder).catch(() => folder)) === root) {
      return `'${folder}' is the folder that was scanned: choose another`;
    }
    target = await freeName(wanted);
  } catch (error) {
    return systemReason(error);
  }
  // first what is known, then the file: after a crash between the two, the photo is found where it was
  database.transaction(() => {
    database.run(
      "INSERT INTO moves (photo_id, path, root, moved_to, bytes, mtime_ms) VALUES (?, ?, ?, ?, ?, ?)",
      [id, path, root, target, bytes, mtime_ms],
    );
    database.run("UPDATE photos SET state = 'moved' WHERE id = ?", [id]);
  });
  try {
    await rename(path, target);
  } catch (error) {
    // a network disk may have done it all the same
    if (!(await isThere(path))) return takeBackLastOne(database, photo, target);
    await removeEmpty(target);
    database.transaction(() => {
      database.run("DELETE FROM moves WHERE moved_to = ?", [target]);
      database.run("UPDATE photos SET state = 'present' WHERE id = ?", [id]);
    });
    return (error as NodeJS.ErrnoException).code === "EXDEV"
      ? `'${folder}' is on another file system: choose a folder on the same disk with --rejected`
      : systemReason(error);
  }
  return takeBackLastOne(database, photo, target);
}

/**
 * A kept photo that has gone with the one that was moved was the same file, on a disk whose numbers of files did not show
 * it (a share that is mounted twice), or somebody removed it meanwhile.
 *
 * @returns Why the photo was taken back, or `undefined` where it was not.
 */
async function takeBackLastOne(
  database: PhotoDatabase,
  photo: ReviewedPhoto,
  target: string,
): Promise<string | undefined> {
  const others = othersOf(database, photo);
  for (const other of others) {
    if (await isAsScanned(other).catch(() => false)) return undefined;
  }
  const move = movedPhotosOf(database).find(({ moved_to }) => moved_to === target);
  // all are rejected: the page has asked
  if (others.length === 0 || move === undefined) return undefined;
  const problem = await restorePhoto(database, move).catch(systemReason);
  const gone = "the photos of its group that are kept were gone when it was moved";
  return problem === undefined
    ? `${gone}: it was put back`
    : `${gone}: it lies at '${target}' (${problem})`;
}

async function isAsScanned({ path, bytes, mtime_ms }: ReviewedPhoto): Promise<boolean> {
  const stats = await lstat(path);
  return stats.isFile() && stats.size === bytes && stats.mtimeMs === mtime_ms;
}

/** The photos of its group that stay. */
function othersOf(database: PhotoDatabase, { id, position }: ReviewedPhoto) {
  return database.all<ReviewedPhoto>(
    `SELECT id, path, root, bytes, mtime_ms, position FROM reviewed
     WHERE position = ? AND id <> ? AND state = 'present' AND decision IS NOT 'reject'
     ORDER BY decision IS NULL, path`,
    [position, id],
  );
}

/** Why a photo could be the last of its group, where a person meant to keep another. */
async function lastOneProblem(
  database: PhotoDatabase,
  photo: ReviewedPhoto,
): Promise<string | undefined> {
  const others = othersOf(database, photo);
  // all are rejected: the page has asked
  if (others.length === 0) return undefined;
  const own = await fileNumber(photo.path);
  let same: string | undefined;
  for (const other of others) {
    if (!(await isAsScanned(other).catch(() => false))) continue;
    if ((await fileNumber(other.path)) !== own) return undefined;
    same = other.path;
  }
  return same === undefined
    ? "the photos of its group that are kept are not there as they were scanned: scan and group again"
    : `is the same file as '${same}', under two names: moving it frees nothing`;
}

/** Names of one file have one number: a hard link, or a folder that is mounted twice. */
async function fileNumber(path: string): Promise<string> {
  const { dev, ino } = await lstat(path, { bigint: true });
  // some file systems number nothing
  return ino === 0n ? path : `${dev} ${ino}`;
}

/** Takes a name that is free, by an empty file: `photo.jpg`, else `photo (2).jpg`, … */
async function freeName(wanted: string): Promise<string> {
  const { name, ext } = parse(wanted);
  await mkdir(dirname(wanted), { recursive: true });
  // the folder's own path: a scan meets the photo under that one, and knows it by it
  const dir = await realpath(dirname(wanted));
  for (let n = 1; ; n++) {
    const candidate = join(dir, n === 1 ? `${name}${ext}` : `${name} (${n})${ext}`);
    if (await takeName(candidate)) return candidate;
  }
}

async function takeName(path: string): Promise<boolean> {
  try {
    await (await open(path, "wx")).close();
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

export interface RestoreOptions {
  /** Which ones; by default all. */
  readonly which?: (move: MovedPhoto) => boolean;
  /** Ends it after the photo that is being put back. */
  readonly signal?: AbortSignal;
}

/** Put photos that were moved back to where they were. A file that is there again by other means is left alone. */
export async function restore(
  database: PhotoDatabase,
  { which = () => true, signal }: RestoreOptions = {},
): Promise<MoveResult> {
  const problems: Skipped[] = [];
  let moved = 0;
  for (const move of movedPhotosOf(database).filter(which)) {
    if (signal?.aborted) break;
    const problem = await restorePhoto(database, move).catch(
      (error: unknown) => `cannot be taken back from '${move.moved_to}': ${systemReason(error)}`,
    );
    if (problem === undefined) moved++;
    else problems.push({ path: move.path, problem });
  }
  return { moved, problems };
}

/** @returns Why it stayed, or `undefined`. */
async function restorePhoto(
  database: PhotoDatabase,
  move: MovedPhoto,
): Promise<string | undefined> {
  const { id, path, moved_to, bytes, mtime_ms } = move;
  const away = await lstat(moved_to).catch(() => undefined);
  if (away === undefined || away.size === 0) {
    // a run that was killed moved nothing, or had put it back already
    const back = await lstat(path).catch(() => undefined);
    if (back?.size !== bytes || back.mtimeMs !== mtime_ms) {
      return away === undefined ? `'${moved_to}' does not exist` : `'${moved_to}' is empty`;
    }
    await removeEmpty(moved_to);
    forgetMove(database, move);
    return undefined;
  }
  await mkdir(dirname(path), { recursive: true });
  database.run("UPDATE moves SET coming_back = 1 WHERE id = ?", [id]);
  if (!(await takeName(path)) && !(move.coming_back === 1 && (await lstat(path)).size === 0)) {
    database.run("UPDATE moves SET coming_back = 0 WHERE id = ?", [id]);
    return `there is a file of this name again; it stays at '${moved_to}'`;
  }
  try {
    await rename(moved_to, path);
  } catch (error) {
    // a network disk may have done it all the same
    if (await isThere(moved_to)) {
      await removeEmpty(path);
      database.run("UPDATE moves SET coming_back = 0 WHERE id = ?", [id]);
      throw error;
    }
  }
  forgetMove(database, move);
  return undefined;
}
