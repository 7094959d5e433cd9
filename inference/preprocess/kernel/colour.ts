// Upsampling of chroma and conversion to RGB, with the results of libjpeg(-turbo), bit for bit.
import { interleaveHigh, interleaveLow, pair } from "./simd";

/**
 * Repeats the outermost samples of lines: one before the first, one after the last.
 *
 * @param line - address of the first sample of the first line
 */
export function repeatEdges(line: usize, stride: usize, lines: i32, samples: usize): void {
  for (; lines > 0; lines--) {
    store<u8>(line - 1, load<u8>(line));
    store<u8>(line + samples, load<u8>(line + samples - 1));
    line += stride;
  }
}

/** Eight sums of 3 × `near` and `far`, of 16 bits. */
@inline
function blended(near: usize, far: usize): v128 {
  return i16x8.add(tripled(v128.load_ext<u8>(near)), v128.load_ext<u8>(far));
}

@inline
function tripled(values: v128): v128 {
  return i16x8.add(i16x8.shl(values, 1), values);
}

/**
 * Doubles the samples of a line like libjpeg's "fancy" upsampling: each result is 3/4 of the nearest sample and 1/4 of the next
 * nearest one, horizontally and, if `far` is another line, vertically.
 *
 * @param near - address of the nearest line, with one more sample at each end
 * @param far - address of the next nearest line; `near` if chroma has as many lines as luma
 * @param samples - samples of `near`, rounded up to 8; twice as many are written
 * @param even, odd - rounding constants of even and odd samples, added before the lowest four bits are dropped
 */
export function upsample(
  near: usize,
  far: usize,
  samples: usize,
  even: i32,
  odd: i32,
  to: usize,
): void {
  const evens = i16x8.splat(<i16>even);
  const odds = i16x8.splat(<i16>odd);
  for (const end = near + samples; near < end; near += 8) {
    const here = tripled(blended(near, far));
    const left = i16x8.add(here, blended(near - 1, far - 1));
    const right = i16x8.add(here, blended(near + 1, far + 1));
    const first = i16x8.shr_u(i16x8.add(left, evens), 4);
    const second = i16x8.shr_u(i16x8.add(right, odds), 4);
    // each result fits in a byte
    v128.store(to, v128.or(first, i16x8.shl(second, 8)));
    far += 8;
    to += 16;
  }
}

/** Bytes that {@link convertToRgb} may write after the last pixel. */
export const RGB_OVERSHOOT: i32 = 52;

// fractions of the conversion (ITU-T T.871, 7), as 15-bit and 16-bit fixed point; integer parts are added separately
const RED_OF_CR: i16 = 13_173; // 1.402 - 1, 15 bits
const BLUE_OF_CB: i16 = -7_471; // 1.772 - 2, 15 bits
const GREEN_OF_CB: i16 = -22_554; // -0.344136, 16 bits
const GREEN_OF_CR: i16 = 18_734; // -0.714136 + 1, 16 bits

/** Eight samples around zero. */
@inline
function centred(address: usize): v128 {
  return i16x8.sub(v128.load_ext<u8>(address), i16x8.splat(128));
}

@inline
function redOf(y: v128, cr: v128): v128 {
  return i16x8.add(i16x8.add(y, cr), i16x8.q15mulr_sat_s(cr, i16x8.splat(RED_OF_CR)));
}

@inline
function blueOf(y: v128, cb: v128): v128 {
  return i16x8.add(
    i16x8.add(y, i16x8.shl(cb, 1)),
    i16x8.q15mulr_sat_s(cb, i16x8.splat(BLUE_OF_CB)),
  );
}

/** Products of four interleaved Cb and Cr, rounded. */
@inline
function greenPart(chroma: v128): v128 {
  const products = i32x4.dot_i16x8_s(chroma, pair(GREEN_OF_CB, GREEN_OF_CR));
  return i32x4.shr_s(i32x4.add(products, i32x4.splat(0x8000)), 16);
}

@inline
function greenOf(y: v128, cb: v128, cr: v128): v128 {
  const part = i16x8.narrow_i32x4_s(
    greenPart(interleaveLow(cb, cr)),
    greenPart(interleaveHigh(cb, cr)),
  );
  return i16x8.add(i16x8.sub(y, cr), part);
}

/** Four pixels of 3 bytes from four of 4 bytes, followed by zeros. */
@inline
function packedPixels(pixels: v128): v128 {
  return v128.swizzle(pixels, i8x16(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
}

/**
 * Converts a line of YCbCr to interleaved RGB.
 *
 * @param y, cb, cr - addresses of lines of `samples`; up to 15 bytes after each are read
 * @param to - address of 3 × `samples` bytes and {@link RGB_OVERSHOOT} more
 */
export function convertToRgb(y: usize, cb: usize, cr: usize, samples: usize, to: usize): void {
  for (const end = y + samples; y < end; y += 16) {
    const y0 = v128.load_ext<u8>(y);
    const y1 = v128.load_ext<u8>(y + 8);
    const cb0 = centred(cb);
    const cb1 = centred(cb + 8);
    const cr0 = centred(cr);
    const cr1 = centred(cr + 8);
    const red = i8x16.narrow_i16x8_u(redOf(y0, cr0), redOf(y1, cr1));
    const blue = i8x16.narrow_i16x8_u(blueOf(y0, cb0), blueOf(y1, cb1));
    const green = i8x16.narrow_i16x8_u(greenOf(y0, cb0, cr0), greenOf(y1, cb1, cr1));
    const redGreen0 = v128.shuffle<i8>(red, green, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const redGreen1 = v128.shuffle<i8>(red, green, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const blue0 = i16x8.extend_low_i8x16_u(blue);
    const blue1 = i16x8.extend_high_i8x16_u(blue);
    v128.store(to, packedPixels(interleaveLow(redGreen0, blue0)), 0);
    v128.store(to, packedPixels(interleaveHigh(redGreen0, blue0)), 12);
    v128.store(to, packedPixels(interleaveLow(redGreen1, blue1)), 24);
    v128.store(to, packedPixels(interleaveHigh(redGreen1, blue1)), 36);
    cb += 16;
    cr += 16;
    to += 48;
  }
}
