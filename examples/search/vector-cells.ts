import type { CosineBlocks, VectorTable } from "./cosine-blocks.ts";

/**
 * Cells of an inverted file (IVF), as in faiss: a vector is in the cell of its closest centre, and is compared with the vectors of the
 * closest cells. Few vectors form one cell and are compared exactly.
 */

/** Number of closest cells with which a vector is compared. */
export const comparedCells = 8;

/** Maximum number of vectors that are compared exactly. */
export const maxExactVectors = 50_000;

const samplesPerCell = 32;
const rounds = 6;

/** Number of cells for a number of vectors; 1 means an exact comparison. */
export function cellCount(vectors: number): number {
  return vectors <= maxExactVectors ? 1 : Math.round(Math.sqrt(vectors));
}

/** Number of vectors from which the centres of the cells are computed. */
export function sampleSize(vectors: number): number {
  return Math.min(vectors, samplesPerCell * cellCount(vectors));
}

/** Computes the centres of at most `count` cells with spherical k-means. The samples must be in random order. */
export async function trainCentres(
  blocks: CosineBlocks,
  samples: VectorTable,
  count: number,
): Promise<VectorTable> {
  let centres = distinctVectors(samples, count);
  for (let round = 0; round < rounds; round++) {
    const closest = await closestCells(blocks, samples, centres, 1);
    centres = meansOf(samples, centres, closest);
  }
  return centres;
}

/** Cosine above which two vectors are not used as separate centres: near-equal photos belong in one cell. */
const maxCentreCosine = 0.98;

function distinctVectors({ width, count, data }: VectorTable, wanted: number): VectorTable {
  const centres = new Float32Array(wanted * width);
  let found = 0;
  for (let i = 0; i < count && found < wanted; i++) {
    const vector = data.subarray(i * width, (i + 1) * width);
    let repeated = false;
    for (let c = 0; c < found && !repeated; c++) {
      let cosine = 0;
      for (let k = 0; k < width; k++) cosine += vector[k]! * centres[c * width + k]!;
      repeated = cosine > maxCentreCosine;
    }
    if (!repeated) centres.set(vector, found++ * width);
  }
  return { width, count: found, data: centres.subarray(0, found * width) };
}

/** Means of the samples of each cell, scaled to unit norm. A cell without samples keeps its centre. */
function meansOf(samples: VectorTable, centres: VectorTable, closest: Int32Array): VectorTable {
  const { width } = samples;
  const sums = new Float32Array(centres.data.length);
  for (const [i, cell] of closest.entries()) {
    for (let k = 0; k < width; k++) sums[cell * width + k]! += samples.data[i * width + k]!;
  }
  for (let cell = 0; cell < centres.count; cell++) {
    const sum = sums.subarray(cell * width, (cell + 1) * width);
    const norm = Math.hypot(...sum);
    if (norm === 0) sum.set(centres.data.subarray(cell * width, (cell + 1) * width));
    else for (let k = 0; k < width; k++) sum[k]! /= norm;
  }
  return { width, count: centres.count, data: sums };
}

/** Returns the closest cells of each vector, the closest first: `[count, perVector]`. */
export async function closestCells(
  blocks: CosineBlocks,
  vectors: VectorTable,
  centres: VectorTable,
  perVector: number,
): Promise<Int32Array> {
  const cells = new Int32Array(vectors.count * perVector);
  const cosines = new Float32Array(vectors.count * perVector).fill(Number.NEGATIVE_INFINITY);
  const limits = new Float32Array(vectors.count).fill(Number.NEGATIVE_INFINITY);
  await blocks.compare(vectors, centres, {
    limits,
    onHit(vector, cell, cosine) {
      const first = vector * perVector;
      let at = first + perVector - 1;
      if (cosine <= cosines[at]!) return;
      for (; at > first && cosines[at - 1]! < cosine; at--) {
        cosines[at] = cosines[at - 1]!;
        cells[at] = cells[at - 1]!;
      }
      cosines[at] = cosine;
      cells[at] = cell;
      limits[vector] = cosines[first + perVector - 1]!;
    },
  });
  return cells;
}
