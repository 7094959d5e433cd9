/**
 * Pillow's bicubic resampling of 8-bit images, bit for bit. It enlarges small images: libvips shifts those by half a
 * pixel, which costs parity with OpenCLIP. (Shrinking is libvips' work: there both agree, and it is faster.)
 */

/** 8-bit samples, interleaved, row-major. */
export interface Pixels {
  readonly data: Uint8Array;
  readonly width: number;
  readonly height: number;
  readonly channels: number;
}

export interface Window {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

interface Size {
  readonly width: number;
  readonly height: number;
}

/** The part of an image that `window` of the result is made of: of a very long image, no more than of a square one. */
export function sourceOf(whole: Size, size: Size, window: Window): Window {
  const span = (taps: readonly Taps[]) => {
    const start = Math.min(...taps.map(({ first }) => first));
    const end = Math.max(...taps.map(({ first, weights }) => first + weights.length));
    return { start, count: end - start };
  };
  const columns = span(weightsOf(whole.width, size.width, window.left, window.width));
  const rows = span(weightsOf(whole.height, size.height, window.top, window.height));
  return { left: columns.start, top: rows.start, width: columns.count, height: rows.count };
}

/**
 * Resize an image to `size` and cut `window` out of the result.
 *
 * @param image - what {@link sourceOf} says of the image, no more
 * @param whole - the image's size
 */
export function enlarge(image: Pixels, whole: Size, size: Size, window: Window): Uint8Array {
  const { data, width, channels } = image;
  const source = sourceOf(whole, size, window);
  const shifted = (taps: readonly Taps[], start: number) =>
    taps.map(({ first, weights }) => ({ first: first - start, weights }));
  const columns = shifted(
    weightsOf(whole.width, size.width, window.left, window.width),
    source.left,
  );
  const rows = shifted(weightsOf(whole.height, size.height, window.top, window.height), source.top);
  const firstRow = rows[0]!.first;
  const lastRow = Math.max(...rows.map(({ first, weights }) => first + weights.length));

  const stretched = new Uint8Array((lastRow - firstRow) * window.width * channels);
  let to = 0;
  for (let y = firstRow; y < lastRow; y++) {
    for (const { first, weights } of columns) {
      const from = (y * width + first) * channels;
      for (let channel = 0; channel < channels; channel++) {
        stretched[to++] = weighted(data, from + channel, channels, weights);
      }
    }
  }

  const line = window.width * channels;
  const result = new Uint8Array(window.height * line);
  to = 0;
  for (const { first, weights } of rows) {
    const from = (first - firstRow) * line;
    for (let sample = 0; sample < line; sample++) {
      result[to++] = weighted(stretched, from + sample, line, weights);
    }
  }
  return result;
}

/** As Pillow does around resizing with alpha: see {@link unpremultiply}. Alpha is the last channel. */
export function premultiply({ data, channels }: Pixels): Uint8Array {
  const result = Uint8Array.from(data);
  for (let pixel = 0; pixel < result.length; pixel += channels) {
    const alpha = result[pixel + channels - 1]!;
    for (let channel = 0; channel < channels - 1; channel++) {
      result[pixel + channel] = mulDiv255(result[pixel + channel]!, alpha);
    }
  }
  return result;
}

/** Back to plain colours, which alpha no longer weighs. */
export function unpremultiply(data: Uint8Array, channels: number): Uint8Array {
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
export function mulDiv255(a: number, b: number): number {
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
