import type { PixelInput } from "../../contract/model-spec.ts";
import type { PixelBuffer, Size } from "./image-types.ts";

/**
 * Port of Pillow's resampling of 8-bit images (Resample.c) and of TensorFlow 1's `resize_bilinear`, without optimisations: the
 * reference that the tests compare the kernel with.
 */

/**
 * Resizes and crops an image in the order of the reference: displayed orientation, crop of `centre-crop`, resize, crop of
 * `shortest-edge`.
 *
 * @returns `[height, width, channels]`; with `letterbox`, without the fill
 */
export function transformed(
  stored: PixelBuffer,
  orientation: number,
  input: PixelInput,
  hasAlpha: boolean,
): Uint8Array {
  const { size, resize, filter } = input;
  const displayed = oriented(stored, orientation);
  const image = resize.mode === "centre-crop" ? centre(displayed, resize.fraction) : displayed;
  const to = resizedSize(image, input);
  const kept = resize.mode === "shortest-edge" ? size : to;
  const start = (length: number, count: number) => roundHalfToEven((length - count) / 2);
  const weights = filter === "tensorflow-bilinear" ? tensorFlowWeights : pillowWeights(filter);
  const columns = weights(image.width, to.width, start(to.width, kept.width), kept.width);
  const rows = weights(image.height, to.height, start(to.height, kept.height), kept.height);
  const weighed = hasAlpha ? { ...image, data: premultiply(image) } : image;
  const isVerticalFirst =
    filter !== "tensorflow-bilinear" &&
    image.height > to.height &&
    image.height - to.height > 2 * (image.width - to.width);
  const { channels } = image;
  const result = isVerticalFirst
    ? transposed({
        data: resized(transposed(weighed), rows, columns),
        width: kept.height,
        height: kept.width,
        channels,
      }).data
    : resized(weighed, columns, rows);
  return hasAlpha ? unpremultiply(result, image.channels) : result;
}

/** Size of the whole image after the resize. */
function resizedSize({ width, height }: Size, { size, resize }: PixelInput): Size {
  if (resize.mode === "shortest-edge") {
    const { edge } = resize;
    if (width <= height) return { width: edge, height: Math.trunc((edge * height) / width) };
    return { width: Math.trunc((edge * width) / height), height: edge };
  }
  if (resize.mode === "letterbox") {
    // ImageOps.contain
    if (width / height > size.width / size.height) {
      const fitted = roundHalfToEven((height / width) * size.width);
      return { width: size.width, height: Math.max(1, fitted) };
    }
    const fitted = roundHalfToEven((width / height) * size.height);
    return { width: Math.max(1, fitted), height: size.height };
  }
  return size;
}

/** Square in the middle, as TensorFlow's models crop it. */
export function centre(
  { data, width, height, channels }: PixelBuffer,
  fraction: number,
): PixelBuffer {
  const side = Math.max(1, Math.trunc(fraction * Math.min(width, height)));
  const left = Math.floor((width - side + 1) / 2);
  const top = Math.floor((height - side + 1) / 2);
  const lines = Array.from({ length: side }, (_, row) => {
    const from = ((top + row) * width + left) * channels;
    return data.subarray(from, from + side * channels);
  });
  return { data: Buffer.concat(lines), width: side, height: side, channels };
}

/** Swaps rows and columns. */
const transposed = (image: PixelBuffer) => oriented(image, 5);

/** `ImageOps.exif_transpose` */
function oriented(image: PixelBuffer, orientation: number): PixelBuffer {
  const { data, channels } = image;
  const [width, height] =
    orientation >= 5 ? [image.height, image.width] : [image.width, image.height];
  const right = image.width - 1;
  const bottom = image.height - 1;
  /** Returns the stored position of the displayed pixel (x, y). */
  const stored = (x: number, y: number): readonly [number, number] => {
    if (orientation === 2) return [right - x, y];
    if (orientation === 3) return [right - x, bottom - y];
    if (orientation === 4) return [x, bottom - y];
    if (orientation === 5) return [y, x];
    if (orientation === 6) return [y, bottom - x];
    if (orientation === 7) return [right - y, bottom - x];
    if (orientation === 8) return [right - y, x];
    return [x, y];
  };
  const result = new Uint8Array(data.length);
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const [column, row] = stored(x, y);
      for (let channel = 0; channel < channels; channel++) {
        result[to++] = data[(row * image.width + column) * channels + channel]!;
      }
    }
  }
  return { data: result, width, height, channels };
}

/** Horizontal pass over all rows, then vertical pass, rounded after each. */
function resized(
  { data, width, height, channels }: PixelBuffer,
  columns: readonly Taps[],
  rows: readonly Taps[],
): Uint8Array {
  const line = columns.length * channels;
  const squeezed = new Uint8Array(height * line);
  let to = 0;
  for (let y = 0; y < height; y++) {
    for (const { first, weights } of columns) {
      const from = (y * width + first) * channels;
      for (let channel = 0; channel < channels; channel++) {
        squeezed[to++] = weighted(data, from + channel, channels, weights);
      }
    }
  }
  const result = new Uint8Array(rows.length * line);
  to = 0;
  for (const { first, weights } of rows) {
    for (let sample = 0; sample < line; sample++) {
      result[to++] = weighted(squeezed, first * line + sample, line, weights);
    }
  }
  return result;
}

/** As Pillow does around resizing with alpha: see {@link unpremultiply}. Alpha is the last channel. */
function premultiply({ data, channels }: PixelBuffer): Uint8Array {
  const result = Uint8Array.from(data);
  for (let pixel = 0; pixel < result.length; pixel += channels) {
    const alpha = result[pixel + channels - 1]!;
    for (let channel = 0; channel < channels - 1; channel++) {
      result[pixel + channel] = mulDiv255(result[pixel + channel]!, alpha);
    }
  }
  return result;
}

/** Converts colours premultiplied by alpha back. */
function unpremultiply(data: Uint8Array, channels: number): Uint8Array {
  const result = Uint8Array.from(data);
  for (let pixel = 0; pixel < result.length; pixel += channels) {
    const alpha = result[pixel + channels - 1]!;
    if (alpha === 0 || alpha === 255) continue;
    for (let channel = 0; channel < channels - 1; channel++) {
      result[pixel + channel] = Math.min(255, Math.trunc((255 * result[pixel + channel]!) / alpha));
    }
  }
  return result;
}

/** `a × b / 255`, rounded, the way Pillow does. */
function mulDiv255(a: number, b: number): number {
  const product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/** Source samples that one result sample is made of: from `first` on, in fixed point. */
interface Taps {
  readonly first: number;
  readonly weights: Int32Array;
}

/** Fractional bits of a weight: 32 less 8 for the sample and 2 for overshoot. */
const precisionBits = 22;
const half = 1 << (precisionBits - 1);

/** Weights of the kept results of a resize from `from` to `to` samples. */
type Weights = (from: number, to: number, start: number, count: number) => readonly Taps[];

function pillowWeights(filter: "bicubic" | "bilinear"): Weights {
  const [weightAt, radius] =
    filter === "bicubic" ? ([cubic, 2] as const) : ([triangle, 1] as const);
  return (from, to, start, count) => {
    const scale = from / to;
    const filterScale = Math.max(scale, 1);
    const support = radius * filterScale;
    return Array.from({ length: count }, (_, index) => {
      const centre = (start + index + 0.5) * scale;
      const first = Math.max(0, Math.trunc(centre - support + 0.5));
      const last = Math.min(from, Math.trunc(centre + support + 0.5));
      const exact = Array.from({ length: last - first }, (_, tap) =>
        weightAt((first + tap - centre + 0.5) * (1 / filterScale)),
      );
      const total = exact.reduce((sum, weight) => sum + weight, 0);
      return { first, weights: Int32Array.from(exact, (weight) => fixedPoint(weight / total)) };
    });
  };
}

/** Linear interpolation between two samples (`compute_interpolation_weights`, legacy scaler). */
const tensorFlowWeights: Weights = (from, to, start, count) =>
  Array.from({ length: count }, (_, index) => {
    const position = (start + index) * (from / to);
    const lower = Math.min(Math.floor(position), from - 1);
    const lerp = position - lower;
    if (lower === from - 1) return { first: lower, weights: Int32Array.of(fixedPoint(1)) };
    return { first: lower, weights: Int32Array.of(fixedPoint(1 - lerp), fixedPoint(lerp)) };
  });

/** `resize_bilinear` of TensorFlow 1 in float32, without rounding to 8 bits: `resize_bilinear_op.cc`, legacy scaler. */
export function resizedByTensorFlow(image: PixelBuffer, to: Size): Float32Array {
  const f = Math.fround;
  const interpolated = (index: number, from: number, count: number) => {
    const position = f(index * f(from / count));
    const lower = Math.floor(position);
    const upper = Math.min(Math.ceil(position), from - 1);
    return { lower: Math.min(lower, upper), upper, share: f(position - lower) };
  };
  const { data, width, height, channels } = image;
  const result = new Float32Array(to.width * to.height * channels);
  let at = 0;
  for (let y = 0; y < to.height; y++) {
    const row = interpolated(y, height, to.height);
    for (let x = 0; x < to.width; x++) {
      const column = interpolated(x, width, to.width);
      for (let channel = 0; channel < channels; channel++) {
        const along = (line: number) => {
          const left = data[(line * width + column.lower) * channels + channel]!;
          const right = data[(line * width + column.upper) * channels + channel]!;
          return f(left + f((right - left) * column.share));
        };
        const top = along(row.lower);
        result[at++] = top + f(f(along(row.upper) - top) * row.share);
      }
    }
  }
  return result;
}

function fixedPoint(weight: number): number {
  const fixed = weight * (1 << precisionBits);
  return Math.trunc(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
}

/** Linear, 0 at a distance of 1. */
function triangle(x: number): number {
  return Math.max(0, 1 - Math.abs(x));
}

/** Keys' cubic with a = -0.5 (Catmull-Rom). */
function cubic(x: number): number {
  const a = -0.5;
  const d = Math.abs(x);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return (((d - 5) * d + 8) * d - 4) * a;
  return 0;
}

function weighted(data: Uint8Array, from: number, step: number, weights: Int32Array): number {
  let sum = half;
  for (let tap = 0, at = from; tap < weights.length; tap++, at += step) {
    sum += data[at]! * weights[tap]!;
  }
  const value = sum >> precisionBits;
  return value < 0 ? 0 : value > 255 ? 255 : value;
}

/** Python's `round()`. */
function roundHalfToEven(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}
