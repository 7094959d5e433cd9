import { type ImageInput, valueRanges } from "../../contract/model-spec.ts";
import { type OnnxTensor, readFloats } from "../onnx/reader.ts";
import {
  matrixDims,
  type ProjectionColumns,
  type Tower,
  type TowerBlock,
  type TowerLinear,
} from "./tower.ts";

/** Matrix as stored in the file: `[from, to]`, row-major. */
export interface Matrix {
  readonly from: number;
  readonly to: number;
  /** Values as bytes, in pieces that are computed when they are written. */
  readonly pieces: () => Iterable<Uint8Array>;
}

/** Columns of a projection, multiplied by a factor. */
export function matrixOf({ linear: { weight }, part, of }: ProjectionColumns, factor = 1): Matrix {
  const [from, all] = matrixDims(weight);
  const to = all / of;
  const { tensor, transposed } = weight;
  const { bytes } = tensor;
  if (!transposed && of === 1 && factor === 1 && bytes !== undefined) {
    return { from, to, pieces: () => [bytes] };
  }
  return {
    from,
    to,
    pieces: () => {
      const values = readFloats(tensor);
      const matrix = new Float32Array(from * to);
      const [rowStep, columnStep] = transposed ? [1, from] : [all, 1];
      for (let row = 0; row < from; row++) {
        let at = row * rowStep + part * to * columnStep;
        for (let column = 0; column < to; column++, at += columnStep) {
          matrix[row * to + column] = values[at]! * factor;
        }
      }
      return [bytesOf(matrix)];
    },
  };
}

/**
 * Columns of a projection, head by head: as `columns`, `[heads, from, head width]`, or transposed to `rows`,
 * `[heads, head width, from]`.
 */
export function columnsByHead(
  part: ProjectionColumns,
  heads: number,
  as: "rows" | "columns",
): Float32Array {
  const matrix = matrixOf(part);
  const { from, to } = matrix;
  const values = floatsOf(matrix);
  const headWidth = to / heads;
  const [rowStep, columnStep] = as === "columns" ? [headWidth, 1] : [1, from];
  const result = new Float32Array(from * to);
  for (let row = 0; row < from; row++) {
    for (let column = 0; column < to; column++) {
      const inHead = column % headWidth;
      const head = (column - inHead) * from;
      result[head + row * rowStep + inHead * columnStep] = values[row * to + column]!;
    }
  }
  return result;
}

/** Values of a matrix, row-major. */
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

export function allColumns(linear: TowerLinear): ProjectionColumns {
  return { linear, part: 0, of: 1 };
}

/** Bias of the attention output, including the contribution of the value bias. Computed in float64. */
export function mixedBias({ output, value }: TowerBlock, values: OnnxTensor): Float32Array {
  const matrix = matrixOf(allColumns(output));
  const { from, to } = matrix;
  const weights = floatsOf(matrix);
  const added = readFloats(values).subarray(value.part * from, (value.part + 1) * from);
  const sums = Float64Array.from(output.bias ? readFloats(output.bias) : new Float32Array(to));
  for (let row = 0; row < from; row++) {
    for (let column = 0; column < to; column++) {
      sums[column]! += added[row]! * weights[row * to + column]!;
    }
  }
  return Float32Array.from(sums);
}

/**
 * Converts the convolution of normalised planes, `Σ w · (p · s − mean) / std + b`, to a matrix of RGB pixels, `Σ w · s / std · p`, and
 * adds the constant, `b − Σ w · mean / std`, to the positions; s is 1/255 for the value range 0..1, and 1 for 0..255. Computed in
 * float64.
 */
export function foldPatches(
  { patches, classToken, positions, width, patchSide }: Tower,
  { mean, std, valueRange, channelOrder }: ImageInput,
) {
  const area = patchSide * patchSide;
  const range = valueRanges[valueRange] / 255;
  return {
    *matrix(): Generator<Uint8Array> {
      const weight = readFloats(patches.weight);
      // one row of the patch at a time
      const rows = new Float32Array(patchSide * 3 * width);
      for (let y = 0; y < patchSide; y++) {
        for (let x = 0; x < patchSide; x++) {
          for (let channel = 0; channel < 3; channel++) {
            const scale = range / std[channel]!;
            const colour = channelOrder === "rgb" ? channel : 2 - channel;
            const to = (x * 3 + colour) * width;
            for (let out = 0; out < width; out++) {
              const value = weight[(out * 3 + channel) * area + y * patchSide + x]!;
              rows[to + out] = value * scale;
            }
          }
        }
        yield bytesOf(rows);
      }
    },
    positions(): Float32Array {
      const sums = readFloats(positions);
      const weight = readFloats(patches.weight);
      const bias = patches.bias && readFloats(patches.bias);
      for (let out = 0; out < width; out++) {
        let constant = bias?.[out] ?? 0;
        for (let channel = 0; channel < 3; channel++) {
          let sum = 0;
          const start = (out * 3 + channel) * area;
          for (let i = start; i < start + area; i++) sum += weight[i]!;
          constant -= (sum * mean[channel]!) / std[channel]!;
        }
        for (let at = width + out; at < sums.length; at += width) sums[at] = sums[at]! + constant;
      }
      const token = classToken && readFloats(classToken);
      for (let i = 0; token !== undefined && i < width; i++) sums[i] = sums[i]! + token[i]!;
      return sums;
    },
  };
}

export function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
