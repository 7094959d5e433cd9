// Pillow's resampling of 8-bit images (ImagingResample), bit for bit.
//
// A weight w has 22 fractional bits. It is split into high and low, w = high × 2^15 + low, each of 16 bits, so that one
// `i32x4.dot_i16x8_s` multiplies and adds eight of them. The combined sums equal Pillow's sum:
// 32-bit arithmetic is exact modulo 2^32, and Pillow's sum fits in 32 bits.

const PRECISION_BITS: i32 = 22;
const LOW_BITS: i32 = 15;

/** Rounds and clips four sums, given as sums of high and of low parts, to the first four bytes. */
@inline
function rounded(high: v128, low: v128): v128 {
  const sum = i32x4.add(i32x4.shl(high, LOW_BITS), low);
  const value = i32x4.shr_s(i32x4.add(sum, i32x4.splat(1 << (PRECISION_BITS - 1))), PRECISION_BITS);
  const narrow = i16x8.narrow_i32x4_s(value, value);
  return i8x16.narrow_i16x8_u(narrow, narrow);
}

/** Rounded results of four channels, each given as the partial sums (high, high, low, low). */
@inline
function gathered(a: v128, b: v128, c: v128, d: v128): v128 {
  const highAb = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
  const highCd = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
  const lowAb = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const lowCd = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  return rounded(
    i32x4.add(v128.shuffle<i64>(highAb, highCd, 0, 2), v128.shuffle<i64>(highAb, highCd, 1, 3)),
    i32x4.add(v128.shuffle<i64>(lowAb, lowCd, 0, 2), v128.shuffle<i64>(lowAb, lowCd, 1, 3)),
  );
}

/**
 * Adds to `sums` the products of a group of weights (four high parts, four low parts) and four samples: the bytes `a`, `b`, `c`
 * and `d` of `pixels`.
 */
@inline
function accumulated(sums: v128, weights: v128, pixels: v128, a: i8, b: i8, c: i8, d: i8): v128 {
  const samples = v128.swizzle(
    pixels,
    i8x16(a, -1, b, -1, c, -1, d, -1, a, -1, b, -1, c, -1, d, -1),
  );
  return i32x4.add(sums, i32x4.dot_i16x8_s(weights, samples));
}

/**
 * Resizes lines horizontally.
 *
 * @param channels - 1 to 4, interleaved
 * @param from, stride, rows - lines of samples; up to 16 bytes after the last one are read but not used
 * @param taps - for each column of the result: i32 offset in bytes of its first pixel in a line; i32 number of groups of four
 *   pixels; for each group, i16 high parts of four weights and i16 low parts
 * @param columns - pixels in a line of the result
 * @param to - contiguous lines of the result; up to 3 bytes after the last one are written
 */
@inline
function horizontal(
  channels: i32,
  from: usize,
  stride: usize,
  rows: i32,
  taps: usize,
  columns: i32,
  to: usize,
): void {
  for (; rows > 0; rows--) {
    let at = taps;
    for (let column = 0; column < columns; column++) {
      let pixel = from + load<u32>(at);
      let groups = load<i32>(at, 4);
      at += 8;
      let a = i32x4.splat(0);
      let b = i32x4.splat(0);
      let c = i32x4.splat(0);
      let d = i32x4.splat(0);
      do {
        const weights = v128.load(at);
        if (channels == 1) {
          const pixels = v128.load_zero<u32>(pixel);
          a = accumulated(a, weights, pixels, 0, 1, 2, 3);
        } else if (channels == 2) {
          const pixels = v128.load_zero<u64>(pixel);
          a = accumulated(a, weights, pixels, 0, 2, 4, 6);
          b = accumulated(b, weights, pixels, 1, 3, 5, 7);
        } else if (channels == 3) {
          const pixels = v128.load(pixel);
          a = accumulated(a, weights, pixels, 0, 3, 6, 9);
          b = accumulated(b, weights, pixels, 1, 4, 7, 10);
          c = accumulated(c, weights, pixels, 2, 5, 8, 11);
        } else {
          const pixels = v128.load(pixel);
          a = accumulated(a, weights, pixels, 0, 4, 8, 12);
          b = accumulated(b, weights, pixels, 1, 5, 9, 13);
          c = accumulated(c, weights, pixels, 2, 6, 10, 14);
          d = accumulated(d, weights, pixels, 3, 7, 11, 15);
        }
        pixel += channels << 2;
        at += 16;
      } while (--groups > 0);
      const result = gathered(a, b, c, d);
      if (channels == 1) v128.store_lane<u8>(to, result, 0);
      else if (channels == 2) v128.store_lane<u16>(to, result, 0);
      else v128.store_lane<u32>(to, result, 0); // of three channels, the next pixel replaces the fourth byte
      to += channels;
    }
    from += stride;
  }
}

export function horizontal1(from: usize, stride: usize, rows: i32, taps: usize, columns: i32, to: usize): void {
  horizontal(1, from, stride, rows, taps, columns, to);
}

export function horizontal2(from: usize, stride: usize, rows: i32, taps: usize, columns: i32, to: usize): void {
  horizontal(2, from, stride, rows, taps, columns, to);
}

export function horizontal3(from: usize, stride: usize, rows: i32, taps: usize, columns: i32, to: usize): void {
  horizontal(3, from, stride, rows, taps, columns, to);
}

export function horizontal4(from: usize, stride: usize, rows: i32, taps: usize, columns: i32, to: usize): void {
  horizontal(4, from, stride, rows, taps, columns, to);
}

/**
 * Resizes lines vertically.
 *
 * @param from, stride - lines of samples; one line and 16 bytes after the last one are read but not used
 * @param bytes - samples in a line of the result, rounded up to 16
 * @param taps - for each row of the result: i32 offset in bytes of its first line; i32 number of pairs of lines; for each pair,
 *   i16 high parts of two weights and i16 low parts
 * @param to - lines of the result, `bytes` apart
 */
export function vertical(from: usize, stride: usize, bytes: usize, taps: usize, rows: i32, to: usize): void {
  for (; rows > 0; rows--) {
    const first = from + load<u32>(taps);
    const pairs = load<i32>(taps, 4);
    taps += 8;
    for (let sample: usize = 0; sample < bytes; sample += 16) {
      let at = taps;
      let line = first + sample;
      let high0 = i32x4.splat(0);
      let high1 = i32x4.splat(0);
      let high2 = i32x4.splat(0);
      let high3 = i32x4.splat(0);
      let low0 = i32x4.splat(0);
      let low1 = i32x4.splat(0);
      let low2 = i32x4.splat(0);
      let low3 = i32x4.splat(0);
      for (let left = pairs; left > 0; left--) {
        const x = v128.load(line);
        const y = v128.load(line + stride);
        const high = v128.load_splat<u32>(at, 0);
        const low = v128.load_splat<u32>(at, 4);
        const lower = v128.shuffle<i8>(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const upper = v128.shuffle<i8>(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        let samples = i16x8.extend_low_i8x16_u(lower);
        high0 = i32x4.add(high0, i32x4.dot_i16x8_s(samples, high));
        low0 = i32x4.add(low0, i32x4.dot_i16x8_s(samples, low));
        samples = i16x8.extend_high_i8x16_u(lower);
        high1 = i32x4.add(high1, i32x4.dot_i16x8_s(samples, high));
        low1 = i32x4.add(low1, i32x4.dot_i16x8_s(samples, low));
        samples = i16x8.extend_low_i8x16_u(upper);
        high2 = i32x4.add(high2, i32x4.dot_i16x8_s(samples, high));
        low2 = i32x4.add(low2, i32x4.dot_i16x8_s(samples, low));
        samples = i16x8.extend_high_i8x16_u(upper);
        high3 = i32x4.add(high3, i32x4.dot_i16x8_s(samples, high));
        low3 = i32x4.add(low3, i32x4.dot_i16x8_s(samples, low));
        line += stride << 1;
        at += 8;
      }
      v128.store_lane<u32>(to + sample, rounded(high0, low0), 0, 0);
      v128.store_lane<u32>(to + sample, rounded(high1, low1), 0, 4);
      v128.store_lane<u32>(to + sample, rounded(high2, low2), 0, 8);
      v128.store_lane<u32>(to + sample, rounded(high3, low3), 0, 12);
    }
    taps += <usize>pairs << 3;
    to += bytes;
  }
}

/** Product of 8-bit numbers divided by 255, rounded like Pillow. */
@inline
function dividedBy255(product: v128): v128 {
  const sum = i16x8.add(product, i16x8.splat(128));
  return i16x8.shr_u(i16x8.add(sum, i16x8.shr_u(sum, 8)), 8);
}

/**
 * Multiplies the colours of interleaved pixels by their alpha, the last channel, in place.
 *
 * @param channels - 2 or 4
 * @param bytes - rounded up to 16
 */
export function premultiply(pixels: usize, bytes: usize, channels: i32): void {
  // `alphas` is the position of the alpha of each byte's pixel; `kept` has all ones at an alpha itself, so that its weight is 255
  const alphas =
    channels == 2
      ? i8x16(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15)
      : i8x16(3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15);
  const kept = channels == 2 ? i16x8.splat(-0x100) : i32x4.splat(-0x1000000);
  for (const end = pixels + bytes; pixels < end; pixels += 16) {
    const values = v128.load(pixels);
    const weights = v128.or(v128.swizzle(values, alphas), kept);
    v128.store(
      pixels,
      i8x16.narrow_i16x8_u(
        dividedBy255(i16x8.extmul_low_i8x16_u(values, weights)),
        dividedBy255(i16x8.extmul_high_i8x16_u(values, weights)),
      ),
    );
  }
}
