import { basename, dirname, relative } from "node:path";
import { cosine } from "../search/query-client.ts";
import { type ComparedPhoto, suggestKeeper } from "./keeper.ts";
import { hashWords, orientations, orientedDistance } from "./perceptual-hash.ts";
import type { PhotoDatabase } from "./photo-database.ts";

export type Decision = "keep" | "reject";

/** Photos of a group that the page shows at a time. */
export const photosPerPage = 60;

interface GroupRow extends ComparedPhoto {
  readonly root: string;
  readonly hash: string;
  readonly state: string;
  readonly decision: Decision | null;
}

/** Similarity of two photos. */
interface Similarity {
  /** Cosine of the embeddings; null without them. */
  readonly cosine: number | null;
  /** Distance of the perceptual hashes. */
  readonly bits: number;
}

/** Returns a page of a group; `undefined` if there is none at this position. */
export function reviewGroup(
  database: PhotoDatabase,
  position: number,
  vectorOf: VectorOf,
  page = 0,
) {
  const rows = readGroup(database, position);
  if (rows.length === 0) return undefined;
  const shown = rows.slice(page * photosPerPage, (page + 1) * photosPerPage);
  const suggested = suggestedKeeper(rows);
  const keeper = rows.find(({ id }) => id === suggested?.id);
  const copies = new Map<string, number>();
  for (const { sha256 } of rows) copies.set(sha256, (copies.get(sha256) ?? 0) + 1);
  const similarity = openSimilarity(vectorOf);
  return {
    position,
    page,
    pages: Math.ceil(rows.length / photosPerPage),
    /** Number of the first photo on the page. */
    first: page * photosPerPage + 1,
    count: rows.length,
    keeper: keeper && suggested && { ...factsOf(keeper), reason: suggested.reason },
    photos: shown.map((row) => ({
      ...factsOf(row),
      state: row.state,
      decision: row.decision,
      name: basename(row.path),
      folder: dirname(relative(row.root, row.path)),
      /** Changes with the file, for the browser's cache. */
      version: row.sha256.slice(0, 8),
      /** Other photos of the group with the same bytes. */
      identical: copies.get(row.sha256)! - 1,
      toKeeper: keeper && similarity(row, keeper),
    })),
    /** Similarity of each pair: for each photo of the page, those with the photos before it. */
    pairs: shown.map((a, i) => shown.slice(0, i).map((b) => similarity(a, b))),
  };
}

function readGroup(database: PhotoDatabase, position: number): readonly GroupRow[] {
  return database.all(
    `SELECT id, path, root, bytes, width, height, taken_at AS takenAt, format, sha256, hash, state, decision
     FROM photos WHERE position = ? AND hash IS NOT NULL ORDER BY path`,
    position,
  );
}

function suggestedKeeper(rows: readonly GroupRow[]) {
  return suggestKeeper(rows.filter(({ state }) => state === "present"));
}

const factsOf = ({ id, bytes, width, height, takenAt, format }: GroupRow) => ({
  id,
  bytes,
  width,
  height,
  takenAt,
  format,
});

/** Embedding of a content by the model with which the photos were grouped; undefined without one. */
export type VectorOf = (sha256: string) => Float32Array | undefined;

function openSimilarity(vectorOf: VectorOf): (a: GroupRow, b: GroupRow) => Similarity {
  const variants = new Map<string, Uint32Array>();
  const variantsOf = ({ hash }: GroupRow) => {
    const known = variants.get(hash) ?? orientations(...hashWords(hash));
    variants.set(hash, known);
    return known;
  };
  return (a, b) => {
    const [left, right] = [vectorOf(a.sha256), vectorOf(b.sha256)];
    return {
      cosine: left && right ? Math.round(1e4 * cosine(left, right)) / 1e4 : null,
      bits: orientedDistance(variantsOf(a), hashWords(b.hash)),
    };
  };
}

/**
 * Accepts the suggestion for a whole group: keeps the suggested photo and rejects the others, except those kept manually.
 *
 * @returns False if the group has no photo on the disk.
 */
export function acceptSuggestion(database: PhotoDatabase, position: number): boolean {
  const keeper = suggestedKeeper(readGroup(database, position));
  if (keeper === undefined) return false;
  database.run(
    `UPDATE photos SET decision = iif(id = ? OR decision IS 'keep', 'keep', 'reject')
     WHERE position = ? AND state = 'present' AND hash IS NOT NULL`,
    keeper.id,
    position,
  );
  return true;
}

/** Undecided copies of present photos: all but one of those with the same bytes, which is a kept one if there is any. */
const spareCopies = `
  SELECT id FROM (
    SELECT id, decision, row_number() OVER (PARTITION BY sha256 ORDER BY decision IS NOT 'keep', path) AS copy
    FROM photos WHERE position IS NOT NULL AND state = 'present' AND decision IS NOT 'reject')
  WHERE copy > 1 AND decision IS NULL`;

/** Returns the number of photos that {@link acceptCopies} rejects. */
export function countSpareCopies(database: PhotoDatabase): number {
  return database.get<{ readonly n: number }>(`SELECT count(*) AS n FROM (${spareCopies})`)!.n;
}

/** Rejects all but one of the undecided photos with the same bytes, in all groups. Groups that contain nothing else are then decided. */
export function acceptCopies(database: PhotoDatabase): void {
  database.transaction(() => {
    database.run(`UPDATE photos SET decision = 'reject' WHERE id IN (${spareCopies})`);
    database.run(
      `UPDATE photos SET decision = 'keep'
       WHERE position IS NOT NULL AND state = 'present' AND decision IS NULL AND position IN (
         SELECT position FROM photos WHERE position IS NOT NULL AND state = 'present' GROUP BY position
         HAVING count(DISTINCT sha256) = 1 AND count(*) > 1)`,
    );
  });
}

/** Returns the next group with an undecided photo, from the start after the last; `undefined` if all are decided. */
export function nextUndecided(database: PhotoDatabase, after: number): number | undefined {
  const first = (condition: string) =>
    database.get<{ readonly position: number }>(
      `SELECT position FROM photos WHERE position ${condition} AND decision IS NULL AND state = 'present'
       ORDER BY position LIMIT 1`,
      after,
    )?.position;
  return first("> ?") ?? first("<= ?");
}
