import { availableParallelism } from "node:os";
import pMap from "p-map";
import { type Progress, reasonOf } from "../search/report.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { readPhoto } from "./read-photo.ts";

/**
 * Reads hash, resolution, format and time of contents, by default of all present photos, unless the index has them. A photo that cannot
 * be read is reported and has none. A run that is stopped keeps what it has read.
 */
export async function readFacts(
  database: PhotoDatabase,
  progress: Progress,
  wanted?: ReadonlySet<string>,
): Promise<void> {
  const missing = database
    .all<{ readonly path: string; readonly sha256: string }>(
      `SELECT min(path) AS path, sha256 FROM photos
       WHERE state = 'present' AND hash IS NULL GROUP BY sha256 ORDER BY path`,
    )
    .filter(({ sha256 }) => wanted?.has(sha256) ?? true);
  let done = 0;
  await pMap(
    missing,
    async ({ path, sha256 }) => {
      try {
        const facts = await readPhoto(path);
        if (facts.sha256 !== sha256) throw new Error("has changed since the scan: scan again");
        database.run(
          "UPDATE photos SET hash = ?, format = ?, width = ?, height = ?, taken_at = ? WHERE sha256 = ?",
          facts.hash,
          facts.format,
          facts.width,
          facts.height,
          facts.takenAt ?? null,
          sha256,
        );
      } catch (error) {
        progress.note(`${path}: cannot be read: ${reasonOf(error)}`);
      }
      progress.update(`reading similar photos: ${++done} of ${missing.length}`);
    },
    { concurrency: availableParallelism() },
  );
}
