import { lstat, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname, join, parse, relative } from "node:path";
import { systemReason } from "./dedupe-error.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import type { Skipped } from "./scan.ts";
import { rejectedFolderName } from "./walk-photos.ts";

export interface MoveResult {
  readonly moved: number;
  /** Photos that stayed where they are, and why. */
  readonly problems: readonly Skipped[];
}

interface RejectedPhoto {
  readonly id: number;
  readonly path: string;
  readonly root: string;
  readonly bytes: number;
  readonly mtime_ms: number;
}

/**
 * Move rejected photos out of the way. Nothing is ever deleted or written over: a photo goes to the same place below the
 * folder of rejected photos, under a new name where there is one, and {@link restore} takes it back.
 *
 * @param folder - Of rejected photos; by default `clipstack-rejected` in the folder that was scanned.
 */
export async function moveRejected(database: PhotoDatabase, folder?: string): Promise<MoveResult> {
  const photos = database.all<RejectedPhoto>(
    `SELECT p.id, p.path, p.root, p.bytes, p.mtime_ms FROM photos p JOIN decisions d ON d.photo_id = p.id
     WHERE d.decision = 'reject' AND p.state = 'present' ORDER BY p.path`,
  );
  const problems: Skipped[] = [];
  let moved = 0;
  for (const photo of photos) {
    const problem = await movePhoto(database, photo, folder);
    if (problem === undefined) moved++;
    else problems.push({ path: photo.path, problem });
  }
  return { moved, problems };
}

/** @returns Why it stayed, or `undefined`. */
async function movePhoto(
  database: PhotoDatabase,
  { id, path, root, bytes, mtime_ms }: RejectedPhoto,
  folder: string | undefined,
): Promise<string | undefined> {
  const rejected = folder ?? join(root, rejectedFolderName);
  let target: string;
  try {
    const stats = await lstat(path);
    if (!stats.isFile() || stats.size !== bytes || stats.mtimeMs !== mtime_ms) {
      return "has changed since the scan: scan again";
    }
    target = await freeName(join(rejected, relative(root, path)));
  } catch (error) {
    return systemReason(error);
  }
  // first what is known, then the file: after a crash between the two, the next scan finds the photo where it is
  setMoved(database, id, target);
  try {
    await rename(path, target);
    return undefined;
  } catch (error) {
    database.run("UPDATE photos SET state = 'present', moved_to = NULL WHERE id = ?", [id]);
    // the empty file that kept the name
    await rm(target, { force: true });
    return (error as NodeJS.ErrnoException).code === "EXDEV"
      ? `'${rejected}' is on another file system: choose a folder on the same disk with --rejected`
      : systemReason(error);
  }
}

function setMoved(database: PhotoDatabase, id: number, target: string): void {
  database.run("UPDATE photos SET state = 'moved', moved_to = ? WHERE id = ?", [target, id]);
}

/** Takes a name that is free, by an empty file: `photo.jpg`, else `photo (2).jpg`, … */
async function freeName(wanted: string): Promise<string> {
  await mkdir(dirname(wanted), { recursive: true });
  const { dir, name, ext } = parse(wanted);
  for (let n = 1; ; n++) {
    const candidate = n === 1 ? wanted : join(dir, `${name} (${n})${ext}`);
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

interface MovedPhoto {
  readonly id: number;
  readonly path: string;
  readonly moved_to: string;
}

/**
 * Put photos that were moved back to where they were. A photo that is there again by other means is left alone.
 *
 * @param id - Of one photo; by default all of them.
 */
export async function restore(database: PhotoDatabase, id?: number): Promise<MoveResult> {
  const photos = database.all<MovedPhoto>(
    "SELECT id, path, moved_to FROM photos WHERE state = 'moved' AND (? IS NULL OR id = ?) ORDER BY path",
    [id ?? null, id ?? null],
  );
  const problems: Skipped[] = [];
  let moved = 0;
  for (const photo of photos) {
    const problem = await restorePhoto(database, photo);
    if (problem === undefined) moved++;
    else problems.push({ path: photo.path, problem });
  }
  return { moved, problems };
}

async function restorePhoto(
  database: PhotoDatabase,
  { id, path, moved_to }: MovedPhoto,
): Promise<string | undefined> {
  try {
    await lstat(moved_to);
    await mkdir(dirname(path), { recursive: true });
    if (!(await takeName(path))) return "there is a file of this name again";
    try {
      await rename(moved_to, path);
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  } catch (error) {
    return `cannot be taken back from '${moved_to}': ${systemReason(error)}`;
  }
  database.transaction(() => {
    database.run("UPDATE photos SET state = 'present', moved_to = NULL WHERE id = ?", [id]);
    database.run("DELETE FROM decisions WHERE photo_id = ?", [id]);
  });
  return undefined;
}
