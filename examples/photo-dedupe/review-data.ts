import { relative } from "node:path";
import { readGrouping } from "./group.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import type { Decision } from "./review-group.ts";

interface Totals {
  readonly groups: number;
  readonly photos: number;
  readonly decided: number;
  /** Photos that would be moved now. */
  readonly rejected: number;
}

/** Returns the totals for the head of the page. One scan of an index, because every decision needs them. */
export function reviewState(database: PhotoDatabase) {
  const grouping = readGrouping(database);
  const totals = database.get<Totals>(
    `SELECT coalesce(max(position) + 1, 0) AS groups, count(*) AS photos, count(decision) AS decided,
       count(iif(decision = 'reject' AND state = 'present', 1, NULL)) AS rejected
     FROM photos WHERE position IS NOT NULL`,
  )!;
  const moved = database.get<{ readonly n: number }>(
    "SELECT count(*) AS n FROM photos WHERE state = 'moved'",
  )!.n;
  return {
    how: grouping?.how ?? "",
    weights: grouping?.weights ?? "unknown",
    ...totals,
    moved,
  };
}

/** Returns the number of groups of which all present photos are rejected. */
export function countEmptiedGroups(database: PhotoDatabase): number {
  return database.get<{ readonly n: number }>(
    `SELECT count(*) AS n FROM (
       SELECT position FROM photos WHERE position IS NOT NULL AND state = 'present' GROUP BY position
       HAVING sum(decision IS NOT 'reject') = 0)`,
  )!.n;
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
