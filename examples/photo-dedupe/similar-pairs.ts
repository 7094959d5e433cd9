import { setImmediate as yieldToEvents } from "node:timers/promises";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { hashWords, ones } from "./perceptual-hash.ts";

/** Contiguous vectors of unit norm. */
export interface VectorTable {
  readonly width: number;
  readonly count: number;
  /** `[count, width]`, row-major. */
  readonly data: Float32Array;
}

export interface PairListener {
  /** Receives a pair of indices, the smaller first, in no particular order. */
  onPair(a: number, b: number): void;
  /** Receives the completed share of the work, 0..1. */
  onProgress?(share: number): void;
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

/** Finds every pair of vectors whose cosine is at least the threshold, by multiplying blocks of them. */
export async function cosinePairs(
  { width, count, data }: VectorTable,
  threshold: number,
  { onPair, onProgress }: PairListener,
): Promise<void> {
  const session = await InferenceSession.create(Buffer.from(cosineBlockGraph, "base64"), {
    // blocks differ in size: memory kept for the next one would never fit
    enableCpuMemArena: false,
  });
  const block = (first: number, size: number) => {
    const rows = Math.min(size, count - first);
    return new Tensor("float32", data.subarray(first * width, (first + rows) * width), [
      rows,
      width,
    ]);
  };
  try {
    for (let row = 0; row < count; row += blockRows) {
      const rows = block(row, blockRows);
      // the products with earlier rows are already known
      for (let column = row; column < count; column += blockColumns) {
        const columns = block(column, blockColumns);
        const result = await session.run({ rows, columns });
        const cosines = result.cosines!.data as Float32Array;
        const largest = result.largest!.data as Float32Array;
        const n = columns.dims[0]!;
        for (const [i, most] of largest.entries()) {
          if (most < threshold) continue;
          for (let j = Math.max(0, row + i + 1 - column); j < n; j++) {
            if (cosines[i * n + j]! >= threshold) onPair(row + i, column + j);
          }
        }
      }
      onProgress?.(completedShare(Math.min(count, row + blockRows), count));
    }
  } finally {
    await session.release();
  }
}

/** Finds every pair of perceptual hashes that differ in at most `distance` of their 64 bits. */
export async function hashPairs(
  hashes: readonly string[],
  distance: number,
  { onPair, onProgress }: PairListener,
): Promise<void> {
  const words = Uint32Array.from(hashes.flatMap(hashWords));
  for (let a = 0; a < hashes.length; a++) {
    const [high, low] = [words[2 * a]!, words[2 * a + 1]!];
    for (let b = a + 1; b < hashes.length; b++) {
      const bits = ones(high ^ words[2 * b]!);
      if (bits <= distance && bits + ones(low ^ words[2 * b + 1]!) <= distance) onPair(a, b);
    }
    if (a % 256 === 0) {
      onProgress?.(completedShare(a, hashes.length));
      await yieldToEvents();
    }
  }
}

/** Share of all pairs that are compared once the pairs of the first `done` of `count` items are. */
function completedShare(done: number, count: number): number {
  return 1 - (1 - done / count) ** 2;
}
