import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { opendir, readFile, realpath, stat } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { extname, join, sep } from "node:path";
import pMap from "p-map";
import { CommandError, type Progress, reasonOf } from "../search/report.ts";
import { heic } from "./open-photo.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";

/** Folder into which rejected photos are moved; never scanned. */
export const rejectedFolderName = "clipstack-rejected";

const photoFile = /^\.(jpe?g|jpe|jfif|png|webp|heic|heif)$/i;

/**
 * Adds new and changed photos of a folder to the index. A file that cannot be read is reported and does not end the scan.
 * Links are not followed. Photos that no longer exist are marked, unless a folder cannot be listed.
 *
 * @throws {CommandError} if the folder itself cannot be read
 */
export async function scan(
  database: PhotoDatabase,
  { folder, progress }: { readonly folder: string; readonly progress: Progress },
) {
  const root = await scannedFolder(folder);
  const seen = (readSetting<number>(database, "scan") ?? 0) + 1;
  writeSetting(database, "scan", seen);
  const counts = { read: 0, unchanged: 0, unreadable: 0, closedFolders: 0 };

  async function* photosIn(path: string): AsyncGenerator<string> {
    try {
      for await (const entry of await opendir(path)) {
        const inside = join(path, entry.name);
        if (entry.isDirectory()) {
          if (entry.name !== rejectedFolderName) yield* photosIn(inside);
        } else if (entry.isFile() && photoFile.test(extname(entry.name))) yield inside;
      }
    } catch (error) {
      counts.closedFolders++;
      progress.note(`${path}: cannot be listed: ${reasonOf(error)}`);
    }
  }

  const scanOne = async (path: string) => {
    const outcome = await scanPhoto(database, { path, root, seen }).catch((error: Error) => error);
    if (outcome instanceof Error) progress.note(`${path}: cannot be read: ${reasonOf(outcome)}`);
    counts[outcome instanceof Error ? "unreadable" : outcome]++;
    progress.update(`${counts.read} read, ${counts.unchanged} unchanged`);
  };
  await pMap(photosIn(root), scanOne, { concurrency: availableParallelism() });
  return { ...counts, gone: counts.closedFolders === 0 ? markGone(database, root, seen) : 0 };
}

/** Canonical path of the folder, so that a photo has one path however the folder is named. */
export async function scannedFolder(folder: string): Promise<string> {
  try {
    const path = await realpath(folder);
    await (await opendir(path)).close();
    return path;
  } catch (cause) {
    throw new CommandError("usage", `folder '${folder}': ${reasonOf(cause)}`, { cause });
  }
}

/** Adds a photo to the index unless it is unchanged. @throws {Error} if it cannot be read */
async function scanPhoto(
  database: PhotoDatabase,
  { path, root, seen }: { readonly path: string; readonly root: string; readonly seen: number },
): Promise<"read" | "unchanged"> {
  const known = database.get<{
    readonly bytes: number;
    readonly mtime_ms: number;
    readonly state: string;
    readonly moved_to: string | null;
  }>("SELECT bytes, mtime_ms, state, moved_to FROM photos WHERE path = ?", path);
  if (known?.state === "moved") {
    if (existsSync(known.moved_to ?? "")) {
      throw new Error(`a photo of this name was moved to '${known.moved_to}': rename this one`);
    }
    // restored manually
    database.run("UPDATE photos SET moved_to = NULL, decision = NULL WHERE path = ?", path);
  }
  const { size, mtimeMs } = await stat(path);
  if (known?.bytes === size && known.mtime_ms === mtimeMs && known.state !== "unreadable") {
    database.run(
      "UPDATE photos SET root = ?, seen = ?, state = 'present' WHERE path = ?",
      root,
      seen,
      path,
    );
    return "unchanged";
  }
  const content = await readFile(path).catch((error: Error) => error);
  const isRead = !(content instanceof Error);
  const sha256 = isRead ? createHash("sha256").update(content).digest("hex") : null;
  database.transaction(() => {
    // its facts, group and decision stay only if the content is the same
    database.run("DELETE FROM photos WHERE path = ? AND sha256 IS NOT ?", path, sha256);
    database.run(
      `INSERT INTO photos (path, root, bytes, mtime_ms, seen, state, sha256, format) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (path) DO UPDATE SET root = excluded.root, bytes = excluded.bytes, mtime_ms = excluded.mtime_ms,
         seen = excluded.seen, state = excluded.state`,
      ...[path, root, size, mtimeMs, seen, isRead ? "present" : "unreadable", sha256],
      isRead && content.subarray(4, 8).toString("latin1") === "ftyp" ? heic : null,
    );
  });
  if (!isRead) throw content;
  return "read";
}

/** Marks photos of the folder that this scan did not find. @returns Their number. */
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
