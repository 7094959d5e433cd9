import { lstat, rm } from "node:fs/promises";
import type { PhotoDatabase } from "./photo-database.ts";

/** A rejected photo, and where it lies. */
export interface MovedPhoto {
  readonly id: number;
  readonly photo_id: number;
  /** Where it was. */
  readonly path: string;
  readonly moved_to: string;
  readonly bytes: number;
  readonly mtime_ms: number;
  /** 1: a run that put it back did not come to its end. */
  readonly coming_back: number;
}

export function movedPhotosOf(database: PhotoDatabase): readonly MovedPhoto[] {
  return database.all<MovedPhoto>(
    "SELECT id, photo_id, path, moved_to, bytes, mtime_ms, coming_back FROM moves ORDER BY path, id",
  );
}

/** Whether a file is a photo that was moved away: a scan leaves it out, wherever it lies. */
export function isRejected(database: PhotoDatabase, path: string): boolean {
  return database.get("SELECT 1 FROM moves WHERE moved_to = ?", [path]) !== undefined;
}

/** A moved photo was found where it had been: what a crash left, or somebody put it back by hand. */
export async function cameBack(database: PhotoDatabase, photo: number): Promise<void> {
  const moves = database.all<MovedPhoto>("SELECT * FROM moves WHERE photo_id = ?", [photo]);
  for (const move of moves) {
    await removeEmpty(move.moved_to);
    // there is a copy of it still: it stays in the list
    if (!(await isThere(move.moved_to))) forgetMove(database, move);
  }
  // whoever took it back does not reject it
  database.run("DELETE FROM decisions WHERE photo_id = ?", [photo]);
}

/** The photo is where it was. It is for a person to reject it again. */
export function forgetMove(database: PhotoDatabase, { id, photo_id }: MovedPhoto): void {
  database.transaction(() => {
    database.run("DELETE FROM moves WHERE id = ?", [id]);
    database.run("UPDATE photos SET state = 'present' WHERE id = ? AND state = 'moved'", [
      photo_id,
    ]);
    database.run("DELETE FROM decisions WHERE photo_id = ?", [photo_id]);
  });
}

export async function isThere(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/** Remove the empty file that kept a name; a file with content is never removed. */
export async function removeEmpty(path: string): Promise<void> {
  const stats = await lstat(path).catch(() => undefined);
  if (stats?.isFile() && stats.size === 0) await rm(path, { force: true });
}
