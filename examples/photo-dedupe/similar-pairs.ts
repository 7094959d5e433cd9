import { setImmediate as yieldToEvents } from "node:timers/promises";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { hashWords, orientations, orientedDistance } from "./perceptual-hash.ts";

/** Contiguous vectors of unit norm. */
export interface VectorTable {
  readonly width: number;
  readonly count: number;
  /** `[count, width]`, row-major. */
  readonly data: Float32Array;
}

/**
 * ONNX graph of two operators, in base64: product of rows and columns (Gemm), and maximum of each row. The matrix product of ONNX
 * Runtime is as fast as a BLAS, and the package is installed anyway. A test compares the graph with its source.
 */
export const cosineBlockGraph =
  "CAgSCWNsaXBzdGFja0IECgAQETr7ARIHY29zaW5lcwo2CgRyb3dzCgdjb2x1bW5zEgdjb3NpbmVzGgdjb3NpbmVzIgRH" +
  "ZW1tKg0KBnRyYW5zQhgBoAECCkQKB2Nvc2luZXMSB2xhcmdlc3QaB2xhcmdlc3QiCVJlZHVjZU1heCoLCgRheGVzQAGg" +
  "AQcqDwoIa2VlcGRpbXMYAKABAlocCgRyb3dzEhQKEggBEg4KAxIBbQoHEgV3aWR0aFofCgdjb2x1bW5zEhQKEggBEg4K" +
  "AxIBbgoHEgV3aWR0aGIbCgdjb3NpbmVzEhAKDggBEgoKAxIBbQoDEgFuYhYKB2xhcmdlc3QSCwoJCAESBQoDEgFt";

const blockRows = 1_024;
const blockColumns = 2_048;

/** Multiplies blocks of vectors on all cores. */
export interface CosineBlocks {
  /**
   * Reports every row and column whose cosine is at least the limit of the row, row by row within a block.
   *
   * @param limits - One per row. `onHit` may raise the one of its row: then most rows of a block are skipped by their maximum.
   * @param self - Rows and columns are the same vectors: reports only columns after the row.
   */
  compare(
    rows: VectorTable,
    columns: VectorTable,
    options: {
      readonly limits: Float32Array;
      readonly self?: boolean;
      onHit(row: number, column: number, cosine: number): void;
      onBlock?(): void;
    },
  ): Promise<void>;
  close(): Promise<void>;
}

export async function openCosineBlocks(): Promise<CosineBlocks> {
  const session = await InferenceSession.create(Buffer.from(cosineBlockGraph, "base64"), {
    // blocks differ in size: memory kept for the next one would never fit
    enableCpuMemArena: false,
  });
  return {
    async compare(rows, columns, { limits, self = false, onHit, onBlock }) {
      for (let row = 0; row < rows.count; row += blockRows) {
        const left = block(rows, row, blockRows);
        for (let column = self ? row : 0; column < columns.count; column += blockColumns) {
          const right = block(columns, column, blockColumns);
          const result = await session.run({ rows: left, columns: right });
          const cosines = result.cosines!.data as Float32Array;
          const largest = result.largest!.data as Float32Array;
          const n = right.dims[0]!;
          for (const [i, most] of largest.entries()) {
            const limit = limits[row + i]!;
            // a photo is compared with later ones only
            const first = self ? Math.max(0, row + i + 1 - column) : 0;
            for (let j = most < limit ? n : first; j < n; j++) {
              const cosine = cosines[i * n + j]!;
              if (cosine >= limit) onHit(row + i, column + j, cosine);
            }
          }
          onBlock?.();
        }
      }
    },
    close: () => session.release(),
  };
}

function block({ data, width, count }: VectorTable, first: number, size: number): Tensor {
  const rows = Math.min(size, count - first);
  const values = data.subarray(first * width, (first + rows) * width);
  return new Tensor("float32", values, [rows, width]);
}

/** Maximum number of later photos that a photo keeps as similar, the closest ones. Bounds the memory for many near-equal photos. */
export const maxPairsPerPhoto = 16;

/** Collects the best pairs of one photo. */
export interface BestPairs {
  /** Similarity that a further pair must exceed; -Infinity as long as there is room. */
  least(): number;
  add(other: number, similarity: number): void;
  /** Returns the pairs, the most similar first, and forgets them. */
  take(): readonly { readonly other: number; readonly similarity: number }[];
}

export function openBestPairs(): BestPairs {
  let pairs: { readonly other: number; readonly similarity: number }[] = [];
  return {
    least: () =>
      pairs.length < maxPairsPerPhoto ? Number.NEGATIVE_INFINITY : pairs.at(-1)!.similarity,
    add(other, similarity) {
      let at = pairs.length;
      while (at > 0 && pairs[at - 1]!.similarity < similarity) at--;
      pairs.splice(at, 0, { other, similarity });
      if (pairs.length > maxPairsPerPhoto) pairs.pop();
    },
    take() {
      const taken = pairs;
      pairs = [];
      return taken;
    },
  };
}

export interface PairListener {
  /** Receives a pair of indices, the smaller first. The similarity of equal items is the highest. */
  onPair(a: number, b: number, similarity: number): void;
  /** Receives the completed share of the work, 0..1. */
  onProgress?(share: number): void;
}

/**
 * Finds pairs of perceptual hashes that differ in at most `distance` of their 64 bits in some orientation: for each hash the closest
 * {@link maxPairsPerPhoto} of the later ones. The similarity is the negative distance.
 */
export async function hashPairs(
  hashes: readonly string[],
  distance: number,
  { onPair, onProgress }: PairListener,
): Promise<void> {
  const words = hashes.map(hashWords);
  const best = openBestPairs();
  for (const [a, [high, low]] of words.entries()) {
    const variants = orientations(high, low);
    for (let b = a + 1; b < words.length; b++) {
      // a hash at this distance would not be kept
      const limit = Math.min(distance, -best.least() - 1);
      if (limit < 0) break;
      const bits = orientedDistance(variants, words[b]!);
      if (bits <= limit) best.add(b, -bits);
    }
    for (const { other, similarity } of best.take()) onPair(a, other, similarity);
    if (a % 256 === 0) {
      onProgress?.(completedShare(a, hashes.length));
      await yieldToEvents();
    }
  }
}

/** Returns the share of all pairs that has been compared when the first `done` of `count` items have been compared with all others. */
function completedShare(done: number, count: number): number {
  return 1 - (1 - done / count) ** 2;
}
