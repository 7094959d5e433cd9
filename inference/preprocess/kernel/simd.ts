// Names for the SIMD instructions that several files use.

/** Lower four 16-bit lanes of two registers, alternating. */
@inline
export function interleaveLow(a: v128, b: v128): v128 {
  return v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Upper four 16-bit lanes of two registers, alternating. */
@inline
export function interleaveHigh(a: v128, b: v128): v128 {
  return v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/** Two 16-bit numbers, alternating: with `i32x4.dot_i16x8_s`, the weights of two interleaved registers. */
@inline
export function pair(a: i16, b: i16): v128 {
  return i16x8(a, b, a, b, a, b, a, b);
}
