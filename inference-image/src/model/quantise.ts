import type { OnnxInitializer } from "./onnx-writer.ts";
import type { Matrix } from "./tower-graph.ts";

/**
 * A matrix as 8-bit integers and one scale a column, symmetric about zero: what `quantize_dynamic` of ONNX Runtime makes
 * with `QInt8` and `per_channel`. One matrix at a time is in memory, when it is written.
 */
export function quantise(
  name: string,
  matrix: Matrix,
): { readonly values: OnnxInitializer; readonly scales: OnnxInitializer } {
  const { from, to } = matrix;
  return {
    values: {
      name,
      dataType: "INT8",
      dims: [from, to],
      data: () => {
        const floats = floatsOf(matrix);
        const scales = columnScales(floats, to);
        const quantised = new Int8Array(floats.length);
        for (let i = 0, column = 0; i < floats.length; i++) {
          quantised[i] = Math.max(-127, Math.min(127, Math.round(floats[i]! / scales[column]!)));
          column = column + 1 === to ? 0 : column + 1;
        }
        return [new Uint8Array(quantised.buffer)];
      },
    },
    scales: {
      name: `${name}.scale`,
      dataType: "FLOAT",
      dims: [to],
      data: () => [new Uint8Array(columnScales(floatsOf(matrix), to).buffer)],
    },
  };
}

/** The largest value of each column becomes 127. */
function columnScales(matrix: Float32Array, columns: number): Float32Array<ArrayBuffer> {
  const largest = new Float32Array(columns);
  for (let i = 0, column = 0; i < matrix.length; i++) {
    const size = Math.abs(matrix[i]!);
    if (size > largest[column]!) largest[column] = size;
    column = column + 1 === columns ? 0 : column + 1;
  }
  // a column of zeros has any scale
  return largest.map((size) => (size === 0 ? 1 : size / 127));
}

/** The values of a matrix, row-major. */
export function floatsOf({ from, to, pieces }: Matrix): Float32Array {
  const values = new Float32Array(from * to);
  const bytes = new Uint8Array(values.buffer);
  let filled = 0;
  for (const piece of pieces()) {
    bytes.set(piece, filled);
    filled += piece.length;
  }
  return values;
}
