import { basename, dirname, relative } from "node:path";
import { readGrouping } from "./group.ts";
import { type ComparedPhoto, differences, suggestKeeper } from "./keeper.ts";
import type { PhotoDatabase } from "./photo-database.ts";

export type Decision = "keep" | "reject";

interface GroupRow extends ComparedPhoto {
  readonly root: string;
  readonly state: string;
  readonly decision: Decision | null;
}

/** Returns the totals for the head of the page. */
export function reviewState(database: PhotoDatabase) {
  const number = (sql: string) => database.get<{ readonly n: number }>(`SELECT (${sql}) AS n`)!.n;
  const grouping = readGrouping(database);
  return {
    how: grouping?.how ?? "",
    weights: grouping?.weights ?? "unknown",
    groups: number("SELECT coalesce(max(position) + 1, 0) FROM photos"),
    photos: number("SELECT count(*) FROM photos WHERE position IS NOT NULL"),
    decided: number(
      "SELECT count(*) FROM photos WHERE position IS NOT NULL AND decision IS NOT NULL",
    ),
    /** Photos that would be moved now. */
    rejected: number(
      "SELECT count(*) FROM photos WHERE position IS NOT NULL AND decision = 'reject' AND state = 'present'",
    ),
    /** Groups of which all present photos are rejected. */
    emptied: number(
      `SELECT count(*) FROM (
         SELECT position FROM photos WHERE position IS NOT NULL AND state = 'present' GROUP BY position
         HAVING sum(decision IS NOT 'reject') = 0)`,
    ),
    moved: number("SELECT count(*) FROM photos WHERE state = 'moved'"),
  };
}

/** Returns a group for the page; `undefined` if there is none at this position. */
export function reviewGroup(database: PhotoDatabase, position: number) {
  const rows = database.all<GroupRow>(
    `SELECT id, path, root, bytes, width, height, taken_at AS takenAt, format, md5, state, decision
     FROM photos WHERE position = ? AND md5 IS NOT NULL ORDER BY path`,
    position,
  );
  if (position >= reviewState(database).groups) return undefined;
  return {
    position,
    differs: differences(rows),
    keeper: suggestKeeper(rows.filter(({ state }) => state === "present")),
    photos: rows.map(({ path, root, md5, ...photo }) => ({
      ...photo,
      name: basename(path),
      folder: dirname(relative(root, path)),
      /** Changes with the file, for the browser's cache. */
      version: md5.slice(0, 8),
      /** Other photos of the group with the same bytes. */
      identical: rows.filter((other) => other.md5 === md5).length - 1,
    })),
  };
}

/** Returns moved photos, which the page can restore. */
export function movedPhotos(database: PhotoDatabase, limit: number) {
  return database
    .all<{
      readonly id: number;
      readonly path: string;
      readonly root: string;
      readonly movedTo: string;
    }>(
      "SELECT id, path, root, moved_to AS movedTo FROM photos WHERE state = 'moved' ORDER BY path LIMIT ?",
      limit,
    )
    .map(({ id, path, root, movedTo }) => ({ id, name: relative(root, path), movedTo }));
}

export interface DecisionOn {
  readonly photo: number;
  /** `null` withdraws the decision. */
  readonly decision: Decision | null;
}

/** Saves decisions. Returns false and saves nothing if one is not for a present photo in a group. */
export function decide(database: PhotoDatabase, decisions: readonly DecisionOn[]): boolean {
  const known = decisions.every(({ photo }) =>
    database.get(
      "SELECT 1 FROM photos WHERE id = ? AND position IS NOT NULL AND state = 'present'",
      photo,
    ),
  );
  if (!known) return false;
  database.transaction(() => {
    for (const { photo, decision } of decisions) {
      database.run("UPDATE photos SET decision = ? WHERE id = ?", decision, photo);
    }
  });
  return true;
}
