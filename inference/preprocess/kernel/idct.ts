// Inverse DCT of a block to samples, with the arithmetic of libjpeg's jidctint.c ("islow"), bit for bit.
import { clearCoefficients, coefficients } from "./coefficients";
import { interleaveHigh, interleaveLow, pair } from "./simd";

/** Fractional bits of the constants. */
const CONST_BITS: i32 = 13;
/** Fractional bits that the result of the first pass keeps. */
const PASS1_BITS: i32 = 2;

// sums and differences of cosines (Loeffler, Ligtenberg and Moschytz 1989), by their values, as in libjpeg
const FIX_0_298631336: i16 = 2446;
const FIX_0_390180644: i16 = 3196;
const FIX_0_541196100: i16 = 4433;
const FIX_0_765366865: i16 = 6270;
const FIX_0_899976223: i16 = 7373;
const FIX_1_175875602: i16 = 9633;
const FIX_1_501321110: i16 = 12299;
const FIX_1_847759065: i16 = 15137;
const FIX_1_961570560: i16 = 16069;
const FIX_2_053119869: i16 = 16819;
const FIX_2_562915447: i16 = 20995;
const FIX_3_072711026: i16 = 25172;

/** A row of coefficients, at `offset` bytes, times its quantisers. */
@inline
function dequantised(quantisers: usize, offset: usize): v128 {
  return i16x8.mul(v128.load(coefficients + offset), v128.load(quantisers + offset));
}

/** Two rows of results around zero as 8-bit samples. */
@inline
function levels(a: v128, b: v128): v128 {
  return v128.xor(i8x16.narrow_i16x8_s(a, b), i8x16.splat(-0x80));
}

/** Results of a pass: eight rows (i32x4) of columns 0 to 3, then eight of columns 4 to 7. */
const results: usize = memory.data(256, 16);

/** Stores the sum and the difference of an even and an odd term as rows `top` and `bottom`. */
@inline
function putRows(to: usize, top: usize, bottom: usize, even: v128, odd: v128, bits: i32): void {
  v128.store(to + top * 16, i32x4.shr_s(i32x4.add(even, odd), bits));
  v128.store(to + bottom * 16, i32x4.shr_s(i32x4.sub(even, odd), bits));
}

/**
 * One pass over four columns.
 *
 * @param sum04, difference04 - of rows 0 and 4
 * @param rows26, rows71, rows53 - two interleaved rows each
 * @param sums - sums of rows 7 and 3 and of rows 5 and 1, interleaved
 * @param bits - fractional bits to remove from the results
 * @param to - address of the results
 */
@inline
function transformColumns(
  sum04: v128, difference04: v128, rows26: v128, sums: v128, rows71: v128, rows53: v128, bits: i32, to: usize,
): void {
  // even part
  const rounding = i32x4.splat((1 << bits) >> 1);
  const c = i32x4.add(i32x4.shl(sum04, CONST_BITS), rounding);
  const d = i32x4.add(i32x4.shl(difference04, CONST_BITS), rounding);
  let a = i32x4.dot_i16x8_s(rows26, pair(FIX_0_541196100, FIX_0_541196100 - FIX_1_847759065));
  let b = i32x4.dot_i16x8_s(rows26, pair(FIX_0_541196100 + FIX_0_765366865, FIX_0_541196100));
  const e0 = i32x4.add(c, b);
  const e3 = i32x4.sub(c, b);
  const e1 = i32x4.add(d, a);
  const e2 = i32x4.sub(d, a);
  // odd part
  a = i32x4.dot_i16x8_s(sums, pair(FIX_1_175875602 - FIX_1_961570560, FIX_1_175875602));
  b = i32x4.dot_i16x8_s(sums, pair(FIX_1_175875602, FIX_1_175875602 - FIX_0_390180644));
  const o0 = i32x4.add(a, i32x4.dot_i16x8_s(rows71, pair(FIX_0_298631336 - FIX_0_899976223, -FIX_0_899976223)));
  const o3 = i32x4.add(b, i32x4.dot_i16x8_s(rows71, pair(-FIX_0_899976223, FIX_1_501321110 - FIX_0_899976223)));
  const o1 = i32x4.add(b, i32x4.dot_i16x8_s(rows53, pair(FIX_2_053119869 - FIX_2_562915447, -FIX_2_562915447)));
  const o2 = i32x4.add(a, i32x4.dot_i16x8_s(rows53, pair(-FIX_2_562915447, FIX_3_072711026 - FIX_2_562915447)));
  putRows(to, 0, 7, e0, o3, bits);
  putRows(to, 1, 6, e1, o2, bits);
  putRows(to, 2, 5, e2, o1, bits);
  putRows(to, 3, 4, e3, o0, bits);
}

@inline
function resultRow(row: usize): v128 {
  return i16x8.narrow_i32x4_s(v128.load(results + row * 16), v128.load(results + 128 + row * 16));
}

/** Stores two rows of samples and returns the address of the next row. */
@inline
function putLevels(to: usize, stride: usize, a: v128, b: v128): usize {
  const z = levels(a, b);
  v128.store_lane<u64>(to, z, 0);
  v128.store_lane<u64>(to + stride, z, 1);
  return to + 2 * stride;
}

/**
 * Writes a block of 8 × 8 samples and clears the coefficients. The same pass transforms the columns and, after a transposition,
 * the rows.
 *
 * @param quantisers - address of 64 u16, row-major
 * @param to - address of the first sample
 * @param stride - bytes from one line of samples to the next
 */
export function inverseDct(quantisers: usize, to: usize, stride: usize): void {
  let r0 = dequantised(quantisers, 0);
  let r1 = dequantised(quantisers, 16);
  let r2 = dequantised(quantisers, 32);
  let r3 = dequantised(quantisers, 48);
  let r4 = dequantised(quantisers, 64);
  let r5 = dequantised(quantisers, 80);
  let r6 = dequantised(quantisers, 96);
  let r7 = dequantised(quantisers, 112);
  clearCoefficients();
  for (let bits = CONST_BITS - PASS1_BITS; bits <= CONST_BITS + PASS1_BITS + 3; bits += 2 * PASS1_BITS + 3) {
    const sum04 = i16x8.add(r0, r4);
    const difference04 = i16x8.sub(r0, r4);
    const sum73 = i16x8.add(r7, r3);
    const sum51 = i16x8.add(r5, r1);
    transformColumns(
      i32x4.extend_low_i16x8_s(sum04), i32x4.extend_low_i16x8_s(difference04),
      interleaveLow(r2, r6), interleaveLow(sum73, sum51), interleaveLow(r7, r1), interleaveLow(r5, r3), bits, results,
    );
    transformColumns(
      i32x4.extend_high_i16x8_s(sum04), i32x4.extend_high_i16x8_s(difference04),
      interleaveHigh(r2, r6), interleaveHigh(sum73, sum51), interleaveHigh(r7, r1), interleaveHigh(r5, r3), bits, results + 128,
    );
    r0 = resultRow(0);
    r1 = resultRow(1);
    r2 = resultRow(2);
    r3 = resultRow(3);
    r4 = resultRow(4);
    r5 = resultRow(5);
    r6 = resultRow(6);
    r7 = resultRow(7);
    // transposition: pairs of 16, of 32, then of 64 bits
    const a = interleaveLow(r0, r1);
    const b = interleaveHigh(r0, r1);
    const c = interleaveLow(r2, r3);
    const d = interleaveHigh(r2, r3);
    const e0 = interleaveLow(r4, r5);
    const e1 = interleaveHigh(r4, r5);
    const e2 = interleaveLow(r6, r7);
    const e3 = interleaveHigh(r6, r7);
    const l0 = v128.shuffle<i32>(a, c, 0, 4, 1, 5);
    const l1 = v128.shuffle<i32>(a, c, 2, 6, 3, 7);
    const l2 = v128.shuffle<i32>(e0, e2, 0, 4, 1, 5);
    const l3 = v128.shuffle<i32>(e0, e2, 2, 6, 3, 7);
    const l4 = v128.shuffle<i32>(b, d, 0, 4, 1, 5);
    const l5 = v128.shuffle<i32>(b, d, 2, 6, 3, 7);
    const l6 = v128.shuffle<i32>(e1, e3, 0, 4, 1, 5);
    const l7 = v128.shuffle<i32>(e1, e3, 2, 6, 3, 7);
    r0 = v128.shuffle<i64>(l0, l2, 0, 2);
    r1 = v128.shuffle<i64>(l0, l2, 1, 3);
    r2 = v128.shuffle<i64>(l1, l3, 0, 2);
    r3 = v128.shuffle<i64>(l1, l3, 1, 3);
    r4 = v128.shuffle<i64>(l4, l6, 0, 2);
    r5 = v128.shuffle<i64>(l4, l6, 1, 3);
    r6 = v128.shuffle<i64>(l5, l7, 0, 2);
    r7 = v128.shuffle<i64>(l5, l7, 1, 3);
  }
  to = putLevels(to, stride, r0, r1);
  to = putLevels(to, stride, r2, r3);
  to = putLevels(to, stride, r4, r5);
  putLevels(to, stride, r6, r7);
}

/** Result of {@link inverseDct} if only the first coefficient is not zero: 64 equal samples. */
export function flatBlock(quantisers: usize, to: usize, stride: usize): void {
  const value = i16x8.splat(<i16>((dequantisedAt(quantisers, 0) + 4) >> 3));
  const sample = levels(value, value);
  store<i16>(coefficients, 0);
  for (let row = 0; row < 8; row++) {
    v128.store_lane<u64>(to, sample, 0);
    to += stride;
  }
}

/** Coefficient `index` in row-major order, times its quantiser. */
@inline
function dequantisedAt(quantisers: usize, index: usize): i32 {
  return <i32>load<i16>(coefficients + index * 2) * <i32>load<u16>(quantisers + index * 2);
}

/** Stores an eighth of `value`, rounded, as a sample. */
@inline
function putSample(to: usize, value: i32): void {
  const level = ((value + 4) >> 3) + 128;
  store<u8>(to, max(0, min(255, level)));
}

/** Four numbers around zero as rounded samples of 32 bits. */
@inline
function roundedLevels(values: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.add(values, f32x4.splat(128.5)));
}

@inline
function dequantisedRow(quantisers: usize, offset: usize): v128 {
  return f32x4.convert_i32x4_s(
    i32x4.extmul_low_i16x8_s(
      v128.load_zero<u64>(coefficients + offset),
      v128.load_zero<u64>(quantisers + offset),
    ),
  );
}

/** Block at half of its size: the inverse DCT of the lowest four frequencies of each axis. Does not clear the coefficients. */
function halfBlock(quantisers: usize, to: usize, stride: usize): void {
  let r0 = dequantisedRow(quantisers, 0);
  let r1 = dequantisedRow(quantisers, 16);
  let r2 = dequantisedRow(quantisers, 32);
  let r3 = dequantisedRow(quantisers, 48);
  for (let pass = 0; pass < 2; pass++) {
    // cos(4π/16), cos(2π/16) and cos(6π/16), halved because the coefficients have the scale of a block of 8
    const sum = f32x4.mul(f32x4.add(r0, r2), f32x4.splat(0.35355339));
    const difference = f32x4.mul(f32x4.sub(r0, r2), f32x4.splat(0.35355339));
    const outer = f32x4.add(
      f32x4.mul(r1, f32x4.splat(0.46193977)),
      f32x4.mul(r3, f32x4.splat(0.19134172)),
    );
    const inner = f32x4.sub(
      f32x4.mul(r1, f32x4.splat(0.19134172)),
      f32x4.mul(r3, f32x4.splat(0.46193977)),
    );
    r0 = f32x4.add(sum, outer);
    r1 = f32x4.add(difference, inner);
    r2 = f32x4.sub(difference, inner);
    r3 = f32x4.sub(sum, outer);
    // transpose
    const a = v128.shuffle<i32>(r0, r1, 0, 4, 1, 5);
    const b = v128.shuffle<i32>(r0, r1, 2, 6, 3, 7);
    const c = v128.shuffle<i32>(r2, r3, 0, 4, 1, 5);
    const d = v128.shuffle<i32>(r2, r3, 2, 6, 3, 7);
    r0 = v128.shuffle<i64>(a, c, 0, 2);
    r1 = v128.shuffle<i64>(a, c, 1, 3);
    r2 = v128.shuffle<i64>(b, d, 0, 2);
    r3 = v128.shuffle<i64>(b, d, 1, 3);
  }
  const samples = i8x16.narrow_i16x8_u(
    i16x8.narrow_i32x4_s(roundedLevels(r0), roundedLevels(r1)),
    i16x8.narrow_i32x4_s(roundedLevels(r2), roundedLevels(r3)),
  );
  v128.store_lane<u32>(to, samples, 0);
  to += stride;
  v128.store_lane<u32>(to, samples, 1);
  to += stride;
  v128.store_lane<u32>(to, samples, 2);
  to += stride;
  v128.store_lane<u32>(to, samples, 3);
}

/** Writes a block of `side` × `side` samples (4, 2 or 1) and clears the coefficients. */
export function reducedBlock(side: i32, quantisers: usize, to: usize, stride: usize): void {
  if (side == 4) {
    halfBlock(quantisers, to, stride);
  } else {
    const mean = dequantisedAt(quantisers, 0);
    if (side == 1) {
      putSample(to, mean);
    } else {
      const across = dequantisedAt(quantisers, 1);
      const down = dequantisedAt(quantisers, 8);
      const both = dequantisedAt(quantisers, 9);
      putSample(to, mean + across + down + both);
      putSample(to + 1, mean - across + down - both);
      putSample(to + stride, mean + across - down - both);
      putSample(to + stride + 1, mean - across - down + both);
    }
  }
  clearCoefficients();
}
