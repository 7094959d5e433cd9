import { cosine, type IndexModel } from "./index-model.ts";
import { hashWords, orientations, orientedDistance } from "./perceptual-hash.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import type { Progress } from "./progress.ts";
import {
  type BestPairs,
  type CosineBlocks,
  openBestPairs,
  openCosineBlocks,
  type VectorTable,
} from "./similar-pairs.ts";
import {
  cellCount,
  closestCells,
  comparedCells,
  sampleSize,
  trainCentres,
} from "./vector-cells.ts";

/** Limits of similar photos. */
export interface SimilarityLimits {
  /** Minimum cosine of the embeddings. */
  readonly threshold: number;
  /** Maximum distance of the perceptual hashes in bits; 64 accepts all. */
  readonly bits: number;
}

interface StoredLimits {
  readonly threshold: number | null;
  readonly bits: number | null;
  readonly centres: ArrayBuffer | null;
  readonly trained: number | null;
}

/** Growth of the index after which the cells are computed again. */
const maxGrowth = 4;

/** Vectors in memory at a time: a chunk of rows and one of columns. */
const chunkBytes = 256 * 1024 * 1024;

/**
 * Compares the embeddings that have not been compared yet, with each other and with all others, and stores the similar pairs. If the
 * stored pairs do not suffice for the limits, or the index has grown much, all are compared again.
 *
 * @returns Number of compared embeddings.
 */
export async function compareNew(
  database: PhotoDatabase,
  model: IndexModel,
  limits: SimilarityLimits,
  progress?: Progress,
): Promise<number> {
  const blocks = await openCosineBlocks();
  try {
    const centres = await prepare(database, { model, limits, blocks });
    const added = database.all<{ readonly id: number }>(
      `SELECT id FROM embeddings WHERE model = ?
       AND id NOT IN (SELECT embedding FROM cells WHERE model = ?) ORDER BY id`,
      model.id,
      model.id,
    );
    if (added.length === 0) return 0;
    const ids = added.map(({ id }) => id);
    const cells = await assign(database, { model, ids, centres, blocks });
    const hashes = openHashes(database, model);
    for (const [cell, members] of cells) {
      await compareCell(database, { model, cell, added: members, limits, blocks, hashes });
      progress?.update(`comparing photos: cell ${cell + 1} of ${centres?.count ?? 1}`);
    }
    // last: a run that is stopped compares again
    database.transaction(() => {
      for (const [cell, members] of cells) {
        for (const id of members.inside) {
          database.run("INSERT INTO cells VALUES (?, ?, ?)", model.id, cell, id);
        }
      }
    });
    return ids.length;
  } finally {
    await blocks.close();
  }
}

interface Task {
  readonly model: IndexModel;
  readonly blocks: CosineBlocks;
}

/** Removes stored pairs that do not suffice, and returns the centres of the cells; `undefined` for one cell. */
async function prepare(
  database: PhotoDatabase,
  { model, limits, blocks }: Task & { readonly limits: SimilarityLimits },
): Promise<VectorTable | undefined> {
  const { width, id } = model;
  const stored = database.get<StoredLimits>(
    "SELECT threshold, bits, centres, trained FROM models WHERE id = ?",
    id,
  )!;
  const total = database.get<{ readonly n: number }>(
    "SELECT count(*) AS n FROM embeddings WHERE model = ?",
    id,
  )!.n;
  const suffices =
    stored.threshold !== null &&
    stored.threshold <= limits.threshold &&
    stored.bits! >= limits.bits &&
    (cellCount(total) === 1 || (stored.centres !== null && total < maxGrowth * stored.trained!));
  if (suffices) {
    if (stored.centres === null) return undefined;
    const data = new Float32Array(stored.centres);
    return { width, count: data.length / width, data };
  }
  const centres =
    cellCount(total) === 1 ? undefined : await train(database, { model, blocks, total });
  database.transaction(() => {
    database.run("DELETE FROM pairs WHERE model = ?", id);
    database.run("DELETE FROM cells WHERE model = ?", id);
    database.run(
      "UPDATE models SET threshold = ?, bits = ?, centres = ?, trained = ? WHERE id = ?",
      limits.threshold,
      limits.bits,
      centres === undefined ? null : new Uint8Array(centres.data.slice().buffer),
      total,
      id,
    );
  });
  return centres;
}

function train(
  database: PhotoDatabase,
  { model, blocks, total }: Task & { readonly total: number },
): Promise<VectorTable> {
  // the hash of the content is a random order, and the same in every run
  const rows = database.all<{ readonly id: number }>(
    "SELECT id FROM embeddings WHERE model = ? ORDER BY md5 LIMIT ?",
    model.id,
    sampleSize(total),
  );
  const ids = rows.map(({ id }) => id);
  return trainCentres(blocks, readVectors(database, model, ids), cellCount(total));
}

/** New embeddings that are compared with a cell. */
interface AddedToCell {
  /** Those of which it is the closest cell. */
  readonly inside: number[];
  readonly near: number[];
}

async function assign(
  database: PhotoDatabase,
  {
    model,
    ids,
    centres,
    blocks,
  }: Task & { readonly ids: readonly number[]; readonly centres: VectorTable | undefined },
): Promise<ReadonlyMap<number, AddedToCell>> {
  if (centres === undefined) return new Map([[0, { inside: [...ids], near: [] }]]);
  const cells = new Map<number, AddedToCell>();
  const size = chunkSize(model);
  const perVector = Math.min(comparedCells, centres.count);
  for (let first = 0; first < ids.length; first += size) {
    const chunk = ids.slice(first, first + size);
    const vectors = readVectors(database, model, chunk);
    const closest = await closestCells(blocks, vectors, centres, perVector);
    for (const [i, cell] of closest.entries()) {
      const members = cells.get(cell) ?? { inside: [], near: [] };
      const list = i % perVector === 0 ? members.inside : members.near;
      list.push(chunk[Math.floor(i / perVector)]!);
      cells.set(cell, members);
    }
  }
  return cells;
}

interface CellTask extends Task {
  readonly cell: number;
  readonly added: AddedToCell;
  readonly limits: SimilarityLimits;
  readonly hashes: HashTable;
}

/** Compares the new embeddings with a cell. */
async function compareCell(database: PhotoDatabase, task: CellTask): Promise<void> {
  const { inside, near } = task.added;
  const old = database
    .all<{ readonly embedding: number }>(
      "SELECT embedding FROM cells WHERE model = ? AND cell = ?",
      task.model.id,
      task.cell,
    )
    .map(({ embedding }) => embedding);
  await compareLists(database, task, inside, undefined);
  await compareLists(database, task, inside, old);
  await compareLists(database, task, near, [...old, ...inside]);
}

/** Stores the similar pairs of rows and columns, or of the rows with each other if there are no columns. */
async function compareLists(
  database: PhotoDatabase,
  { model, limits, blocks, hashes }: CellTask,
  rows: readonly number[],
  columns: readonly number[] | undefined,
): Promise<void> {
  const size = chunkSize(model);
  const inner = columns ?? rows;
  if (rows.length === 0 || inner.length === 0) return;
  for (let row = 0; row < rows.length; row += size) {
    const left = rows.slice(row, row + size);
    const leftVectors = readVectors(database, model, left);
    const best: (BestPairs | undefined)[] = new Array(left.length);
    const least = new Float32Array(left.length).fill(limits.threshold);
    for (let column = columns ? 0 : row; column < inner.length; column += size) {
      const self = columns === undefined && column === row;
      const right = self ? left : inner.slice(column, column + size);
      const rightVectors = self ? leftVectors : readVectors(database, model, right);
      await blocks.compare(leftVectors, rightVectors, {
        limits: least,
        self,
        onHit(i, j, similarity) {
          const pairs = best[i] ?? openBestPairs();
          best[i] = pairs;
          if (similarity <= pairs.least()) return;
          if (hashes.distance(left[i]!, right[j]!, limits.bits) > limits.bits) return;
          pairs.add(right[j]!, similarity);
          least[i] = Math.max(limits.threshold, pairs.least());
        },
      });
    }
    database.transaction(() => {
      for (const [i, pairs] of best.entries()) {
        for (const { other, similarity } of pairs?.take() ?? []) {
          const [a, b] = [Math.min(left[i]!, other), Math.max(left[i]!, other)];
          database.run(
            "INSERT OR IGNORE INTO pairs VALUES (?, ?, ?, ?)",
            model.id,
            a,
            b,
            similarity,
          );
        }
      }
    });
  }
}

function chunkSize({ width }: IndexModel): number {
  return Math.max(1, Math.floor(chunkBytes / (4 * width)));
}

/** Embeddings per query: one query for each would take three times as long. */
const vectorsPerQuery = 1_000;

/** Reads embeddings in the order of the ids. */
export function readVectors(
  database: PhotoDatabase,
  { width }: IndexModel,
  ids: readonly number[],
): VectorTable {
  const data = new Float32Array(ids.length * width);
  for (let first = 0; first < ids.length; first += vectorsPerQuery) {
    const rows = database.all<{ readonly vector: ArrayBuffer }>(
      `SELECT e.vector FROM json_each(?) ids CROSS JOIN embeddings e
       WHERE e.id = ids.value ORDER BY ids.key`,
      JSON.stringify(ids.slice(first, first + vectorsPerQuery)),
    );
    for (const [i, { vector }] of rows.entries()) {
      data.set(new Float32Array(vector), (first + i) * width);
    }
  }
  return { width, count: ids.length, data };
}

export function readVector(database: PhotoDatabase, id: number): Float32Array {
  const row = database.get<{ readonly vector: ArrayBuffer }>(
    "SELECT vector FROM embeddings WHERE id = ?",
    id,
  );
  return new Float32Array(row!.vector);
}

/** Perceptual hashes by embedding. */
export interface HashTable {
  /**
   * Returns the distance in the closest orientation.
   *
   * @param enough - A distance up to this ends the search for a smaller one.
   */
  distance(a: number, b: number, enough?: number): number;
}

export function openHashes(database: PhotoDatabase, { id }: IndexModel): HashTable {
  const words = new Map<number, readonly [number, number]>();
  const rows = database.all<{ readonly id: number; readonly hash: string }>(
    `SELECT e.id, p.hash FROM embeddings e JOIN photos p ON p.md5 = e.md5
     WHERE e.model = ? GROUP BY e.id`,
    id,
  );
  for (const row of rows) words.set(row.id, hashWords(row.hash));
  let variantsOf = -1;
  let variants = new Uint32Array(0);
  return {
    distance(a, b, enough = 0) {
      const [left, right] = [words.get(a), words.get(b)];
      // a photo that is no longer in the index
      if (left === undefined || right === undefined) return Number.POSITIVE_INFINITY;
      if (a !== variantsOf) {
        variants = orientations(...left) as Uint32Array<ArrayBuffer>;
        variantsOf = a;
      }
      return orientedDistance(variants, right, enough);
    },
  };
}

/** Angle of two embeddings in radians: a metric, unlike the cosine. */
export function angle(a: Float32Array, b: Float32Array): number {
  return Math.acos(Math.min(1, Math.max(-1, cosine(a, b))));
}
