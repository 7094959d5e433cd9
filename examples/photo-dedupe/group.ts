import { DedupeError } from "./dedupe-error.ts";
import { type Weights, weightsInUse } from "./model-probe.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import { cosinePairs, hashPairs, type PairListener, type VectorTable } from "./similar-pairs.ts";

export const groupKinds = ["embedding", "hash"] as const;

export interface GroupOptions {
  /** Property to compare. Perceptual hashes need no model. */
  readonly by: (typeof groupKinds)[number];
  /** Minimum cosine of two similar embeddings. */
  readonly threshold: number;
  /** Maximum Hamming distance of two similar perceptual hashes. */
  readonly distance: number;
  readonly progress?: Progress;
}

export interface GroupResult {
  /** Sorted paths, sorted by the first path of the group. */
  readonly groups: readonly (readonly string[])[];
  /** Number of compared photos. */
  readonly photos: number;
  /** Number of photos that were not compared. */
  readonly withoutEmbedding: number;
  readonly how: string;
  readonly weights: Weights;
  readonly seconds: number;
}

interface Item {
  readonly id: number;
  readonly path: string;
  readonly md5: string;
  readonly hash: string;
}

/**
 * Replaces the groups in the index. A group is a set of photos connected by chains of similar photos; photos with the same bytes are
 * always in one group. The groups do not depend on the order of scanning.
 *
 * @throws {DedupeError} if nothing was scanned or embedded
 */
export async function group(database: PhotoDatabase, options: GroupOptions): Promise<GroupResult> {
  const { by, threshold, distance, progress = openProgress() } = options;
  const startedAt = performance.now();
  const present = database.all<Item & { readonly embedded: number }>(
    `SELECT p.id, p.path, p.md5, p.hash, e.md5 IS NOT NULL AS embedded
     FROM photos p LEFT JOIN embeddings e ON e.md5 = p.md5 WHERE p.state = 'present' ORDER BY p.path`,
  );
  if (present.length === 0) {
    throw new DedupeError("failed", "no photos: run 'clipstack-dedupe scan' first");
  }
  const items = by === "hash" ? present : present.filter(({ embedded }) => embedded === 1);
  if (items.length === 0) {
    throw new DedupeError(
      "failed",
      "no embeddings: run 'clipstack-dedupe embed' first, or group with --by hash",
    );
  }
  const groups = await connectedItems(database, items, { ...options, progress });
  const how =
    by === "hash"
      ? `perceptual hash, at most ${distance} of 64 bits differ`
      : `cosine of at least ${threshold}`;
  const weights = by === "hash" ? "unknown" : weightsInUse(database);
  writeGroups(database, groups, { how, weights });
  return {
    groups: groups.map((members) => members.map(({ path }) => path)),
    photos: items.length,
    withoutEmbedding: present.length - items.length,
    how,
    weights,
    seconds: (performance.now() - startedAt) / 1000,
  };
}

/** Returns the connected components of at least two similar items, in the order of the items. */
async function connectedItems(
  database: PhotoDatabase,
  items: readonly Item[],
  { by, threshold, distance, progress }: GroupOptions,
): Promise<readonly (readonly Item[])[]> {
  /** One item per content, in the order of the paths. */
  const contents = [...new Map(items.map((item) => [item.md5, item])).values()];
  const sets = disjointSets(contents.length);
  const listener: PairListener = {
    onPair: sets.join,
    onProgress: (share) => progress?.update(`comparing photos: ${Math.round(100 * share)} %`),
  };
  if (by === "hash") {
    const hashes = contents.map(({ hash }) => hash);
    await hashPairs(hashes, distance, listener);
  } else {
    const vectors = readVectors(
      database,
      contents.map(({ md5 }) => md5),
    );
    await cosinePairs(vectors, threshold, listener);
  }
  progress?.end();
  const rootOfContent = new Map(contents.map(({ md5 }, i) => [md5, sets.rootOf(i)]));
  const members = new Map<number, Item[]>();
  for (const item of items) {
    const root = rootOfContent.get(item.md5)!;
    const known = members.get(root);
    if (known === undefined) members.set(root, [item]);
    else known.push(item);
  }
  return [...members.values()].filter(({ length }) => length > 1);
}

/** Disjoint sets of the numbers 0 to `count` - 1, initially of one number each. */
function disjointSets(count: number) {
  const parents = Int32Array.from({ length: count }, (_, i) => i);
  function rootOf(index: number): number {
    let root = index;
    while (parents[root] !== root) {
      parents[root] = parents[parents[root]!]!;
      root = parents[root]!;
    }
    return root;
  }
  return {
    rootOf,
    join(a: number, b: number) {
      parents[rootOf(b)] = rootOf(a);
    },
  };
}

/** Embeddings by content, in the order of the MD5 sums. */
export function readVectors(database: PhotoDatabase, md5s: readonly string[]): VectorTable {
  let data = new Float32Array(0);
  let width = 0;
  for (const [i, md5] of md5s.entries()) {
    const row = database.get<{ readonly vector: ArrayBuffer }>(
      "SELECT vector FROM embeddings WHERE md5 = ?",
      md5,
    );
    const values = new Float32Array(row!.vector);
    if (i === 0) {
      width = values.length;
      data = new Float32Array(md5s.length * width);
    }
    data.set(values, i * width);
  }
  return { width, count: md5s.length, data };
}

/** Options with which the groups of the index were computed. */
export interface Grouping {
  readonly how: string;
  readonly weights: Weights;
}

function writeGroups(
  database: PhotoDatabase,
  groups: readonly (readonly Item[])[],
  grouping: Grouping,
): void {
  database.transaction(() => {
    database.run("UPDATE photos SET position = NULL");
    for (const [position, members] of groups.entries()) {
      for (const { id } of members) {
        database.run("UPDATE photos SET position = ? WHERE id = ?", position, id);
      }
    }
    writeSetting(database, "groups", grouping);
  });
}

export function readGrouping(database: PhotoDatabase): Grouping | undefined {
  return readSetting(database, "groups");
}
