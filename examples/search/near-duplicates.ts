import {
  type BestPairs,
  type CosineBlocks,
  openBestPairs,
  openCosineBlocks,
  type VectorTable,
} from "./cosine-blocks.ts";
import {
  cellCount,
  closestCells,
  comparedCells,
  sampleSize,
  trainCentres,
} from "./vector-cells.ts";

/** Similar vectors by index, `a < b`. */
export interface SimilarPair {
  readonly a: number;
  readonly b: number;
  readonly cosine: number;
}

export interface NearDuplicateOptions {
  /** Minimum cosine. */
  readonly threshold: number;
  /**
   * Vectors that are not compared with each other, because their pairs are known.
   *
   * @default - none
   */
  isKnown?(index: number): boolean;
  /** Receives the completed share of the cells, 0..1. */
  onProgress?(share: number): void;
}

/**
 * Finds pairs of similar vectors: all pairs of up to `maxExactVectors`; of more, those of a vector with the vectors of its closest
 * cells. A vector keeps its `maxPairsPerVector` closest ones.
 *
 * @returns The most similar first.
 */
export async function nearDuplicates(
  vectors: VectorTable,
  { threshold, isKnown = () => false, onProgress }: NearDuplicateOptions,
): Promise<readonly SimilarPair[]> {
  const blocks = await openCosineBlocks();
  const best = new Map<number, BestPairs>();
  const comparison = { vectors, blocks, threshold, best };
  try {
    const cells = await cellsOf(blocks, vectors);
    for (const [index, { inside, near }] of cells.entries()) {
      const added = inside.filter((id) => !isKnown(id));
      await compare(comparison, added, undefined);
      await compare(comparison, added, inside.filter(isKnown));
      await compare(
        comparison,
        near.filter((id) => !isKnown(id)),
        inside,
      );
      onProgress?.((index + 1) / cells.length);
    }
  } finally {
    await blocks.close();
  }
  return pairsOf(best);
}

interface Cell {
  /** Vectors of which it is the closest cell. */
  readonly inside: number[];
  /** Vectors of which it is one of the next cells. */
  readonly near: number[];
}

async function cellsOf(blocks: CosineBlocks, vectors: VectorTable): Promise<readonly Cell[]> {
  const { count } = vectors;
  const cells = cellCount(count);
  const ids = Array.from({ length: count }, (_, id) => id);
  if (cells === 1) return [{ inside: ids, near: [] }];
  // a fixed order that looks random
  const order = (id: number) => Math.imul(id, 0x9e37_79b1) >>> 0;
  const sample = [...ids].sort((a, b) => order(a) - order(b)).slice(0, sampleSize(count));
  const centres = await trainCentres(blocks, rowsOf(vectors, sample), cells);
  const perVector = Math.min(comparedCells, centres.count);
  const closest = await closestCells(blocks, vectors, centres, perVector);
  const found = Array.from({ length: centres.count }, (): Cell => ({ inside: [], near: [] }));
  for (const [i, cell] of closest.entries()) {
    const list = i % perVector === 0 ? found[cell]!.inside : found[cell]!.near;
    list.push(Math.floor(i / perVector));
  }
  return found;
}

interface Comparison {
  readonly vectors: VectorTable;
  readonly blocks: CosineBlocks;
  readonly threshold: number;
  /** By row. */
  readonly best: Map<number, BestPairs>;
}

/** Rows that are copied at a time. */
const chunkRows = 16_384;

/** Adds the similar pairs of rows and columns, or of the rows with each other if there are no columns. */
async function compare(
  { vectors, blocks, threshold, best }: Comparison,
  rows: readonly number[],
  columns: readonly number[] | undefined,
): Promise<void> {
  const inner = columns ?? rows;
  for (let first = 0; first < rows.length; first += chunkRows) {
    const left = rows.slice(first, first + chunkRows);
    const leftVectors = rowsOf(vectors, left);
    const limitOf = (row: number) => Math.max(threshold, best.get(row)?.least() ?? threshold);
    const limits = Float32Array.from(left, limitOf);
    for (let column = columns ? 0 : first; column < inner.length; column += chunkRows) {
      const self = columns === undefined && column === first;
      const right = self ? left : inner.slice(column, column + chunkRows);
      await blocks.compare(leftVectors, self ? leftVectors : rowsOf(vectors, right), {
        limits,
        self,
        onHit(i, j, cosine) {
          const row = left[i]!;
          const pairs = best.get(row) ?? openBestPairs();
          best.set(row, pairs);
          if (cosine <= pairs.least()) return;
          pairs.add(right[j]!, cosine);
          limits[i] = limitOf(row);
        },
      });
    }
  }
}

function rowsOf({ width, data }: VectorTable, ids: readonly number[]): VectorTable {
  const rows = new Float32Array(ids.length * width);
  for (const [i, id] of ids.entries())
    rows.set(data.subarray(id * width, (id + 1) * width), i * width);
  return { width, count: ids.length, data: rows };
}

/** Pairs in a fixed order. Two vectors may have found each other. */
function pairsOf(best: ReadonlyMap<number, BestPairs>): readonly SimilarPair[] {
  const found: SimilarPair[] = [];
  for (const [row, { pairs }] of best) {
    for (const { other, similarity: cosine } of pairs) {
      const [a, b] = [Math.min(row, other), Math.max(row, other)];
      const isRepeated = row > other && best.get(other)?.pairs.some((pair) => pair.other === row);
      if (!isRepeated) found.push({ a, b, cosine });
    }
  }
  return found.sort((x, y) => y.cosine - x.cosine || x.a - y.a || x.b - y.b);
}
