import { InferenceSession, Tensor } from "onnxruntime-node";

/**
 * An ONNX graph of two operators: the product of rows and columns, and the largest value of each row. A test writes it anew
 * and compares. The matrix product of ONNX Runtime is as fast as a BLAS, and comes with the packages that are here anyway.
 */
export const cosineBlockGraph =
  "CAgSCWNsaXBzdGFja0IECgAQETr7ARIHY29zaW5lcwo2CgRyb3dzCgdjb2x1bW5zEgdjb3NpbmVzGgdjb3NpbmVzIgRH" +
  "ZW1tKg0KBnRyYW5zQhgBoAECCkQKB2Nvc2luZXMSB2xhcmdlc3QaB2xhcmdlc3QiCVJlZHVjZU1heCoLCgRheGVzQAGg" +
  "AQcqDwoIa2VlcGRpbXMYAKABAlocCgRyb3dzEhQKEggBEg4KAxIBbQoHEgV3aWR0aFofCgdjb2x1bW5zEhQKEggBEg4K" +
  "AxIBbgoHEgV3aWR0aGIbCgdjb3NpbmVzEhAKDggBEgoKAxIBbQoDEgFuYhYKB2xhcmdlc3QSCwoJCAESBQoDEgFt";

export interface CosineBlock {
  /** `[m, n]`, row-major. */
  readonly cosines: Float32Array;
  /** `[m]`: the largest cosine of each row. */
  readonly largest: Float32Array;
}

/** Multiplies blocks of vectors: `[m, width]` by `[n, width]`, all with unit norm. */
export interface CosineBlocks {
  multiply(rows: Float32Array, columns: Float32Array): Promise<CosineBlock>;
  close(): Promise<void>;
}

export async function openCosineBlocks(width: number): Promise<CosineBlocks> {
  const session = await InferenceSession.create(Buffer.from(cosineBlockGraph, "base64"), {
    // products of all sizes: what is kept for the next one would never fit
    enableCpuMemArena: false,
  });
  const tensor = (vectors: Float32Array) =>
    new Tensor("float32", vectors, [vectors.length / width, width]);
  return {
    async multiply(rows, columns) {
      const { cosines, largest } = await session.run({
        rows: tensor(rows),
        columns: tensor(columns),
      });
      return {
        cosines: cosines!.data as Float32Array,
        largest: largest!.data as Float32Array,
      };
    },
    close: () => session.release(),
  };
}
