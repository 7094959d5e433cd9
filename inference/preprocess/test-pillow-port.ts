import type { PixelBuffer } from "./image-types.ts";

/**
 * Port of Pillow's bicubic resampling of 8-bit images (Resample.c), without optimisations: the reference that the tests
 * compare the kernel with.
 */

/**
 * OpenCLIP's validation transform up to the crop: the pixels in the order in which they are seen, the shortest side to
 * `side`, the middle.
 *
 * @returns `[side, side, channels]`
 */
export function transformed(
  stored: PixelBuffer,
  orientation: number,
  side: number,
  hasAlpha: boolean,
): Uint8Array {
  const image = oriented(stored, orientation);
  const short = Math.min(image.width, image.height);
  const scaled = (length: number) =>
    length === short ? side : Math.trunc((side * length) / short);
  const start = (length: number) => roundHalfToEven((scaled(length) - side) / 2);
  const columns = weightsOf(image.width, scaled(image.width), start(image.width), side);
  const rows = weightsOf(image.height, scaled(image.height), start(image.height), side);
  const weighed = hasAlpha ? { ...image, data: premultiply(image) } : image;
  const result = resized(weighed, columns, rows);
  return hasAlpha ? unpremultiply(result, image.channels) : result;
}

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

function weightsOf(from: number, to: number, start: number, count: number): readonly Taps[] {
  const scale = from / to;
  const filterScale = Math.max(scale, 1);
  const support = 2 * filterScale;
  return Array.from({ length: count }, (_, index) => {
    const centre = (start + index + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(from, Math.trunc(centre + support + 0.5));
    const exact = Array.from({ length: last - first }, (_, tap) =>
      cubic((first + tap - centre + 0.5) / filterScale),
    );
    const total = exact.reduce((sum, weight) => sum + weight, 0);
    const weights = Int32Array.from(exact, (weight) => {
      const fixed = (weight / total) * (1 << precisionBits);
      return Math.trunc(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    });
    return { first, weights };
  });
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
