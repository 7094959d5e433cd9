import { setImmediate as yieldToEvents } from "node:timers/promises";
import { components } from "./cluster.ts";
import { openCosineBlocks } from "./cosine-block.ts";
import { DedupeError } from "./dedupe-error.ts";
import { hashWords, ones } from "./perceptual-hash.ts";

/** Vectors one after the other, each with unit norm. */
export interface VectorTable {
  readonly width: number;
  readonly count: number;
  /** `[count, width]`, row-major. */
  readonly data: Float32Array;
}

/** Two of the things that were compared, by their index, the smaller first. */
export interface Pair {
  readonly a: number;
  readonly b: number;
  /** Cosine of vectors; for hashes the part of the bits that are equal. */
  readonly similarity: number;
}

export interface PairOptions {
  /** Smallest similarity of a pair that is reported. */
  readonly threshold: number;
  /** Share of the work that is done, 0..1. */
  readonly onProgress?: (share: number) => void;
}

const blockRows = 1_024;
const blockColumns = 2_048;

/**
 * How much the fast products may be off. A pair near the threshold is computed again in double precision and a fixed order,
 * so that what is a pair depends neither on the processor nor on the method.
 */
const tolerance = 1e-4;

/** Every pair of vectors whose cosine is at least the threshold, in no particular order. */
export async function exactPairs(
  table: VectorTable,
  { threshold, onProgress = () => {} }: PairOptions,
  onPair: (pair: Pair) => void,
): Promise<void> {
  const { width, count, data } = table;
  const blocks = await openCosineBlocks(width);
  const slice = (from: number, size: number) =>
    data.subarray(from * width, Math.min(count, from + size) * width);
  try {
    for (let row = 0; row < count; row += blockRows) {
      // products of this block with the ones above it were had before
      for (let column = row; column < count; column += blockColumns) {
        const columns = slice(column, blockColumns);
        const { cosines, largest } = await blocks.multiply(slice(row, blockRows), columns);
        const n = columns.length / width;
        for (let i = 0; i < largest.length; i++) {
          if (largest[i]! < threshold - tolerance) continue;
          for (let j = 0; j < n; j++) {
            const [a, b] = [row + i, column + j];
            if (b <= a || cosines[i * n + j]! < threshold - tolerance) continue;
            reportPair(table, a, b, threshold, onPair);
          }
        }
      }
      const rest = Math.max(0, count - row - blockRows) / count;
      onProgress(1 - rest * rest);
    }
  } finally {
    await blocks.close();
  }
}

/** Neighbours that are looked at for each vector. */
const neighbours = 64;
/** The most, for a vector whose neighbours are all similar: larger groups are joined through others, and may be cut. */
const mostNeighbours = 4_096;
/** In a set of this many linked vectors, pairs that the index missed are looked for; larger ones stay as it found them. */
const mostCompared = 1_000;
const searchBlock = 2_000;
const addBlock = 1_000;

/**
 * Pairs of vectors whose cosine is at least the threshold, by an HNSW index: nearly all of them, in a time that grows with
 * the number of vectors and not with its square.
 */
export async function approximatePairs(
  { width, count, data }: VectorTable,
  { threshold, onProgress = () => {} }: PairOptions,
  onPair: (pair: Pair) => void,
): Promise<void> {
  const table = { width, count, data };
  const { Index, MetricKind, ScalarKind } = await loadIndex();
  const index = new Index({
    dimensions: width,
    metric: MetricKind.IP,
    quantization: ScalarKind.F16,
    connectivity: 16,
    expansion_add: 128,
    expansion_search: 128,
    multi: false,
  });
  for (let first = 0; first < count; first += addBlock) {
    const last = Math.min(count, first + addBlock);
    const keys = BigUint64Array.from({ length: last - first }, (_, i) => BigInt(first + i));
    // one thread: with several the index, and so what it misses, differs from run to run
    index.add(keys, data.subarray(first * width, last * width), 1);
    onProgress((0.8 * last) / count);
    await yieldToEvents();
  }
  /** Of each vector, those that were found near it. */
  const near = new Map<number, Set<number>>();
  const linked = components(count);
  for (let first = 0; first < count; first += searchBlock) {
    const last = Math.min(count, first + searchBlock);
    const queries = Array.from({ length: last - first }, (_, i) =>
      data.subarray((first + i) * width, (first + i + 1) * width),
    );
    const found = index.search(queries, Math.min(neighbours, count), 1);
    for (const [query, vector] of queries.entries()) {
      let { keys, distances } = found.get(query);
      // half precision: the distance says only what is worth a closer look
      const isNear = (distance: number) => 1 - distance >= threshold - 0.01;
      while (keys.length < Math.min(mostNeighbours, count) && isNear(distances.at(-1) ?? 2)) {
        const more = Math.min(4 * keys.length, mostNeighbours, count);
        const before = keys.length;
        ({ keys, distances } = index.search(vector, more, 1));
        if (keys.length <= before) break;
      }
      for (const [i, key] of keys.entries()) {
        const [a, b] = [first + query, Number(key)];
        if (b === a || !isNear(distances[i]!)) continue;
        const found = near.get(a);
        if (found === undefined) near.set(a, new Set([b]));
        else found.add(b);
        reportPair(table, Math.min(a, b), Math.max(a, b), threshold, (pair) => {
          linked.add(pair);
          onPair(pair);
        });
      }
    }
    onProgress(0.8 + (0.19 * last) / count);
    await yieldToEvents();
  }
  // one that is missed would cut a group in two
  for (const group of linked.groups()) {
    if (group.length > mostCompared) continue;
    for (const [i, a] of group.entries()) {
      for (const b of group.slice(i + 1)) {
        if (near.get(a)?.has(b) || near.get(b)?.has(a)) continue;
        reportPair(table, a, b, threshold, onPair);
      }
    }
  }
  onProgress(1);
}

/** It is a native library, built for some platforms: whoever needs no index does without it. */
async function loadIndex(): Promise<typeof import("usearch")> {
  try {
    return await import("usearch");
  } catch {
    throw new DedupeError(
      "usage",
      `the index needs usearch, which has no build for ${process.platform}-${process.arch}: use --method exact`,
    );
  }
}

function reportPair(
  { width, data }: VectorTable,
  a: number,
  b: number,
  threshold: number,
  onPair: (pair: Pair) => void,
): void {
  let similarity = 0;
  for (let k = 0; k < width; k++) similarity += data[a * width + k]! * data[b * width + k]!;
  if (similarity >= threshold) onPair({ a, b, similarity });
}

/** Every pair of perceptual hashes that differ in at most `distance` of the 64 bits. */
export async function hashPairs(
  hashes: readonly string[],
  { distance, onProgress = () => {} }: Pick<PairOptions, "onProgress"> & { distance: number },
  onPair: (pair: Pair) => void,
): Promise<void> {
  const words = Uint32Array.from(hashes.flatMap(hashWords));
  for (let a = 0; a < hashes.length; a++) {
    const [high, low] = [words[2 * a]!, words[2 * a + 1]!];
    for (let b = a + 1; b < hashes.length; b++) {
      const bits = ones(high ^ words[2 * b]!);
      if (bits > distance) continue;
      const all = bits + ones(low ^ words[2 * b + 1]!);
      if (all <= distance) onPair({ a, b, similarity: 1 - all / 64 });
    }
    if (a % 256 === 0) {
      const rest = (hashes.length - a) / hashes.length;
      onProgress(1 - rest * rest);
      await yieldToEvents();
    }
  }
}
