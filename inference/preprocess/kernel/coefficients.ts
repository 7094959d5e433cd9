/** Address of the 64 coefficients (i16, row-major) of the block that is being decoded. All are zero between blocks. */
export const coefficients: usize = memory.data(128, 16);

/** Sets all coefficients to zero. `memory.fill` would take longer than a block. */
@inline
export function clearCoefficients(): void {
  const zero = i64x2.splat(0);
  v128.store(coefficients, zero, 0);
  v128.store(coefficients, zero, 16);
  v128.store(coefficients, zero, 32);
  v128.store(coefficients, zero, 48);
  v128.store(coefficients, zero, 64);
  v128.store(coefficients, zero, 80);
  v128.store(coefficients, zero, 96);
  v128.store(coefficients, zero, 112);
}
