import { basename, dirname, relative } from "node:path";
import { groupsMadeBy } from "./group.ts";
import { differences, suggestKeeper } from "./keeper.ts";
import type { PhotoDatabase } from "./photo-database.ts";

export type Decision = "keep" | "reject";

export interface ReviewState {
  /** How the groups were made. */
  readonly how: string;
  readonly weights: "random" | "unknown";
  readonly groups: number;
  /** Photos in groups, and those that a person has decided on. */
  readonly photos: number;
  readonly decided: number;
  /** Photos that would be moved now. */
  readonly rejected: number;
  /** Groups of which no photo would be left. */
  readonly emptied: number;
  readonly moved: number;
  readonly canUndo: boolean;
}

interface GroupRow {
  readonly id: number;
  readonly path: string;
  readonly root: string;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  readonly taken_at: string | null;
  readonly format: string;
  readonly md5: string;
  readonly state: string;
  readonly decision: Decision | null;
}

export function reviewState(database: PhotoDatabase): ReviewState {
  const number = (sql: string) => database.get<{ readonly n: number }>(`SELECT ${sql} AS n`)!.n;
  const made = groupsMadeBy(database);
  return {
    how: made?.how ?? "",
    weights: made?.weights ?? "unknown",
    groups: number("(SELECT count(DISTINCT position) FROM group_members)"),
    photos: number("(SELECT count(*) FROM reviewed)"),
    decided: number("(SELECT count(*) FROM reviewed WHERE decision IS NOT NULL)"),
    rejected: number(
      "(SELECT count(*) FROM reviewed WHERE decision = 'reject' AND state = 'present')",
    ),
    emptied: number(
      `(SELECT count(*) FROM (
         SELECT position FROM reviewed GROUP BY position
         HAVING sum(state = 'present') > 0 AND sum(state = 'present' AND decision IS NOT 'reject') = 0))`,
    ),
    moved: number("(SELECT count(*) FROM moves)"),
    canUndo: number("EXISTS (SELECT 1 FROM actions)") === 1,
  };
}

/** A group as the page shows it; `undefined` where there is none at this place. */
export function reviewGroup(database: PhotoDatabase, position: number) {
  const rows = database.all<GroupRow>(
    `SELECT id, path, root, bytes, width, height, taken_at, format, md5, state, decision
     FROM reviewed WHERE position = ? ORDER BY path`,
    [position],
  );
  const grouped = database.get<{ readonly group_id: string; readonly n: number }>(
    "SELECT group_id, count(*) AS n FROM group_members WHERE position = ? GROUP BY group_id",
    [position],
  );
  if (grouped === undefined) return undefined;
  const copies = new Map<string, number>();
  for (const { md5 } of rows) copies.set(md5, (copies.get(md5) ?? 0) + 1);
  const photos = rows.map(({ taken_at: takenAt, ...row }) => ({ ...row, takenAt }));
  return {
    id: grouped.group_id,
    position,
    /** Photos that were grouped, and are other files now or cannot be read. */
    changed: grouped.n - rows.length,
    differs: differences(photos),
    keeper: suggestKeeper(photos.filter(({ state }) => state === "present")),
    photos: photos.map(({ id, path, root, bytes, width, height, takenAt, format, ...photo }) => ({
      id,
      name: basename(path),
      folder: dirname(relative(root, path)),
      bytes,
      width,
      height,
      takenAt,
      format,
      /** Changes with the file, for the browser's cache. */
      version: photo.md5.slice(0, 8),
      /** Other photos of the group with the same bytes. */
      identical: copies.get(photo.md5)! - 1,
      state: photo.state,
      decision: photo.decision,
    })),
  };
}

/** Photos that were moved, for the list that takes them back. */
export function movedPhotos(database: PhotoDatabase, limit: number) {
  return database
    .all<{
      readonly id: number;
      readonly path: string;
      readonly root: string;
      readonly moved_to: string;
    }>("SELECT id, path, root, moved_to FROM moves ORDER BY path, id LIMIT ?", [limit])
    .map(({ id, path, root, moved_to }) => ({ id, name: relative(root, path), movedTo: moved_to }));
}

export interface DecisionOn {
  readonly photo: number;
  /** `null`: none. */
  readonly decision: Decision | null;
}

/**
 * Save what a person decided, as one step that undo takes back.
 *
 * @returns False, and nothing is saved, when one of them is no photo of a group that is there.
 */
export function decide(database: PhotoDatabase, decisions: readonly DecisionOn[]): boolean {
  const known = decisions.every(
    ({ photo }) =>
      database.get(
        "SELECT 1 FROM group_members m JOIN photos p ON p.id = m.photo_id AND p.md5 = m.md5 WHERE p.id = ? AND p.state = 'present'",
        [photo],
      ) !== undefined,
  );
  if (!known) return false;
  database.transaction(() => {
    const before = decisions.map(({ photo }) => decisionOf(database, photo));
    for (const decision of decisions) writeDecision(database, decision);
    database.run("INSERT INTO actions (before) VALUES (?)", [JSON.stringify(before)]);
  });
  return true;
}

export interface Undone {
  /** Of the group that it was about; `undefined` where it is in none, or nothing was to take back. */
  readonly position: number | undefined;
  /** Photos whose decisions were not taken back: they were moved away, or are other files now. */
  readonly left: number;
}

/** Take the last step back. */
export function undo(database: PhotoDatabase): Undone {
  const action = database.get<{ readonly id: number; readonly before: string }>(
    "SELECT id, before FROM actions ORDER BY id DESC LIMIT 1",
  );
  if (action === undefined) return { position: undefined, left: 0 };
  const before: readonly DecisionBefore[] = JSON.parse(action.before);
  const left = database.transaction(() => {
    let left = 0;
    for (const decision of before) {
      // a photo that was moved meanwhile is restored from its list; another file of its name is another photo
      const now = database.get<{ readonly state: string; readonly md5: string | null }>(
        "SELECT state, md5 FROM photos WHERE id = ?",
        [decision.photo],
      );
      if (now?.state === "present" && now.md5 === decision.md5) writeDecision(database, decision);
      else left++;
    }
    database.run("DELETE FROM actions WHERE id = ?", [action.id]);
    return left;
  });
  const group = database.get<{ readonly position: number }>(
    "SELECT position FROM group_members WHERE photo_id = ?",
    [before[0]?.photo ?? 0],
  );
  return { position: group?.position, left };
}

/** A photo's decision before a step, and which file it was about. */
interface DecisionBefore extends DecisionOn {
  readonly md5: string;
}

function decisionOf(database: PhotoDatabase, photo: number): DecisionBefore {
  return database.get<DecisionBefore>(
    `SELECT p.id AS photo, p.md5, d.decision FROM photos p
     LEFT JOIN decisions d ON d.photo_id = p.id AND d.md5 = p.md5 WHERE p.id = ?`,
    [photo],
  )!;
}

function writeDecision(database: PhotoDatabase, { photo, decision }: DecisionOn): void {
  if (decision === null) database.run("DELETE FROM decisions WHERE photo_id = ?", [photo]);
  else {
    database.run(
      "INSERT OR REPLACE INTO decisions (photo_id, decision, md5) SELECT id, ?, md5 FROM photos WHERE id = ?",
      [decision, photo],
    );
  }
}
