import { createHash } from "node:crypto";
import { type Clusterer, completeLinkage, components } from "./cluster.ts";
import { DedupeError } from "./dedupe-error.ts";
import { modelInUse } from "./model-identity.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import {
  approximatePairs,
  exactPairs,
  hashPairs,
  type Pair,
  type VectorTable,
} from "./similar-pairs.ts";
import { vectorOf } from "./vectors.ts";

export const groupKinds = ["embedding", "hash"] as const;
export const linkages = ["components", "complete"] as const;
export const methods = ["auto", "exact", "approximate"] as const;

export interface GroupOptions {
  /** What is compared: embeddings, or perceptual hashes, for which nothing needs to be embedded. */
  readonly by: (typeof groupKinds)[number];
  /** Least cosine of two embeddings. */
  readonly threshold: number;
  /** Most bits of two perceptual hashes that differ. */
  readonly distance: number;
  /** `components`: a chain of similar photos is a group. `complete`: all photos of a group are similar to each other. */
  readonly linkage: (typeof linkages)[number];
  /** `auto`: `exact` up to {@link exactLimit} photos. */
  readonly method: (typeof methods)[number];
  readonly progress?: Progress;
}

/** Photos that are compared each with each by `auto`; beyond, an HNSW index is faster. */
export const exactLimit = 200_000;

export interface GroupResult {
  /** Paths in order, the groups by their first. */
  readonly groups: readonly (readonly string[])[];
  readonly photos: number;
  /** Photos that are not compared: no embedding yet. */
  readonly left: number;
  /** How, for people and for the review page. */
  readonly how: string;
  readonly weights: "random" | "unknown";
  readonly seconds: number;
}

interface Item {
  readonly id: number;
  readonly path: string;
  readonly md5: string;
}

/** Photos by path. Those with the same bytes are compared once: they have one row. */
interface Rows {
  readonly items: readonly Item[];
  /** Of each item. */
  readonly rows: readonly number[];
  /** Number of rows. */
  readonly count: number;
}

/**
 * Put photos that show the same into groups, in place of the groups that were there. The same photos give the same groups,
 * whatever order they were scanned in; a group has the same id as long as its first photo is the same.
 *
 * @throws {DedupeError} when nothing was scanned or embedded
 */
export async function group(database: PhotoDatabase, options: GroupOptions): Promise<GroupResult> {
  const { progress = openProgress() } = options;
  const startedAt = performance.now();
  const present = count(database, "SELECT count(*) AS n FROM photos WHERE state = 'present'");
  if (present === 0)
    throw new DedupeError("failed", "no photos: run 'clipstack-dedupe scan' first");
  const model = options.by === "embedding" ? modelInUse(database) : undefined;
  if (options.by === "embedding" && model === undefined) {
    throw new DedupeError(
      "failed",
      "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
    );
  }
  const onProgress = (share: number) =>
    progress.update(() => `comparing photos: ${Math.round(100 * share)} %`);
  const { photos, how, pairs } =
    options.by === "hash"
      ? byHash(database, options, onProgress)
      : byEmbedding(database, options, onProgress);

  const clusterer: Clusterer =
    options.linkage === "complete" ? completeLinkage() : components(photos.count);
  try {
    await pairs((pair) => clusterer.add(pair));
  } catch (error) {
    if (error instanceof RangeError) throw new DedupeError("failed", error.message);
    throw error;
  }
  const groups = itemsOf(clusterer.groups(), photos);
  writeGroups(database, groups, how, model?.weights ?? "unknown");
  progress.end();
  return {
    groups: groups.map((members) => members.map(({ path }) => path)),
    photos: photos.items.length,
    left: present - photos.items.length,
    how,
    weights: model?.weights ?? "unknown",
    seconds: (performance.now() - startedAt) / 1000,
  };
}

/** Groups of rows, as groups of photos; photos with the same bytes are a group without another one too. */
function itemsOf(
  groups: readonly (readonly number[])[],
  { items, rows, count }: Rows,
): readonly (readonly Item[])[] {
  const groupOfRow = Int32Array.from({ length: count }, (_, row) => row);
  for (const members of groups) for (const row of members) groupOfRow[row] = members[0]!;
  const members = new Map<number, Item[]>();
  // by path, so that the groups come in the order of their first
  for (const [i, item] of items.entries()) {
    const group = groupOfRow[rows[i]!]!;
    const known = members.get(group);
    if (known === undefined) members.set(group, [item]);
    else known.push(item);
  }
  return [...members.values()].filter(({ length }) => length > 1);
}

interface Comparison {
  readonly photos: Rows;
  readonly how: string;
  readonly pairs: (onPair: (pair: Pair) => void) => Promise<void>;
}

function byHash(
  database: PhotoDatabase,
  { distance, linkage }: GroupOptions,
  onProgress: (share: number) => void,
): Comparison {
  const photos = collectRows();
  const hashes: string[] = [];
  for (const { hash, ...item } of pages<Item & { readonly hash: string }>(
    database,
    "SELECT id, path, md5, hash FROM photos WHERE state = 'present' AND path > ? ORDER BY path LIMIT 1000",
  )) {
    if (photos.add(item)) hashes.push(hash);
  }
  return {
    photos: photos.rows(),
    how: `perceptual hash, at most ${distance} of 64 bits differ, ${linkage}`,
    pairs: (onPair) => hashPairs(hashes, { distance, onProgress }, onPair),
  };
}

function byEmbedding(
  database: PhotoDatabase,
  { threshold, linkage, method }: GroupOptions,
  onProgress: (share: number) => void,
): Comparison {
  const { table, ...photos } = readEmbeddings(database);
  const exact = method === "exact" || (method === "auto" && table.count <= exactLimit);
  const find = exact ? exactPairs : approximatePairs;
  return {
    photos,
    how: `cosine of at least ${threshold}, ${exact ? "all pairs" : "HNSW index"}, ${linkage}`,
    pairs: (onPair) => find(table, { threshold, onProgress }, onPair),
  };
}

/** The photos that are there and have an embedding, by path, and their vectors. */
export function readEmbeddings(database: PhotoDatabase): Rows & { readonly table: VectorTable } {
  const from = `FROM photos p JOIN embeddings e ON e.photo_id = p.id AND e.md5 = p.md5
    WHERE p.state = 'present'`;
  const total = count(database, `SELECT count(DISTINCT p.md5) AS n ${from}`);
  const photos = collectRows();
  let data = new Float32Array(0);
  let width = 0;
  for (const { vector, ...item } of pages<Item & { readonly vector: Uint8Array }>(
    database,
    `SELECT p.id, p.path, p.md5, e.vector ${from} AND p.path > ? ORDER BY p.path LIMIT 1000`,
  )) {
    if (!photos.add(item)) continue;
    const values = vectorOf(vector);
    const { count: row } = photos.rows();
    if (row === 1) {
      width = values.length;
      data = new Float32Array(total * width);
    }
    data.set(values, (row - 1) * width);
  }
  const rows = photos.rows();
  return { ...rows, table: { width, count: rows.count, data } };
}

function collectRows(): { add(item: Item): boolean; rows(): Rows } {
  const [items, rows] = [[] as Item[], [] as number[]];
  const rowOf = new Map<string, number>();
  return {
    /** @returns Whether it has a row of its own. */
    add(item) {
      const known = rowOf.get(item.md5);
      items.push(item);
      rows.push(known ?? rowOf.size);
      if (known === undefined) rowOf.set(item.md5, rowOf.size);
      return known === undefined;
    },
    rows: () => ({ items, rows, count: rowOf.size }),
  };
}

/** Rows of a statement that goes on after a path. */
function* pages<Row extends Item>(database: PhotoDatabase, sql: string): Generator<Row> {
  for (let after = ""; ; ) {
    const rows = database.all<Row>(sql, [after]);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.path;
  }
}

function writeGroups(
  database: PhotoDatabase,
  groups: readonly (readonly Item[])[],
  how: string,
  weights: string,
): void {
  // one transaction: the review page sees the old groups or the new ones
  database.transaction(() => {
    database.run("DELETE FROM group_members");
    for (const [position, members] of groups.entries()) {
      const id = groupId(members[0]!.path);
      for (const photo of members) {
        database.run(
          `INSERT INTO group_members (photo_id, group_id, position, md5)
           SELECT id, ?, ?, md5 FROM photos WHERE id = ?`,
          [id, position, photo.id],
        );
      }
    }
    writeSetting(database, "groups", JSON.stringify({ how, weights }));
  });
}

function groupId(firstPath: string): string {
  return createHash("sha256").update(firstPath).digest("hex").slice(0, 12);
}

/** How the groups were made; `undefined` where there are none yet. */
export function groupsMadeBy(
  database: PhotoDatabase,
): { readonly how: string; readonly weights: "random" | "unknown" } | undefined {
  const text = readSetting(database, "groups");
  return text === undefined ? undefined : JSON.parse(text);
}

function count(database: PhotoDatabase, sql: string): number {
  return database.get<{ readonly n: number }>(sql)!.n;
}
