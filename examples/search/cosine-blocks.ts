import { InferenceSession, Tensor } from "onnxruntime-node";

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
            // a vector is compared with later ones only
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

/** Maximum number of vectors that a vector keeps as similar, the closest ones. Bounds the memory for many near-equal ones. */
export const maxPairsPerVector = 16;

/** Collects the best pairs of one vector. */
export interface BestPairs {
  /** Similarity that a further pair must exceed; -Infinity as long as there is room. */
  least(): number;
  add(other: number, similarity: number): void;
  /** The most similar first. */
  readonly pairs: readonly { readonly other: number; readonly similarity: number }[];
}

export function openBestPairs(): BestPairs {
  const pairs: { readonly other: number; readonly similarity: number }[] = [];
  return {
    least: () =>
      pairs.length < maxPairsPerVector ? Number.NEGATIVE_INFINITY : pairs.at(-1)!.similarity,
    add(other, similarity) {
      let at = pairs.length;
      while (at > 0 && pairs[at - 1]!.similarity < similarity) at--;
      pairs.splice(at, 0, { other, similarity });
      if (pairs.length > maxPairsPerVector) pairs.pop();
    },
    pairs,
  };
}
