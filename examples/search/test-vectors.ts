import type { VectorTable } from "./cosine-blocks.ts";

/** Random unit vectors for tests, and copies of each with noise. */
export function noisyCopies(options: {
  readonly originals: number;
  readonly copies: number;
  readonly width: number;
  /** Deviation of each value; values are about 1 / sqrt(width). */
  readonly noise: number;
  readonly seed: number;
}): VectorTable {
  const { originals, copies, width, noise, seed } = options;
  const count = originals * (1 + copies);
  const data = new Float32Array(count * width);
  let state = seed >>> 0;
  // xorshift32
  const random = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32 - 0.5;
  };
  for (let i = 0; i < count; i++) {
    const original = (i % originals) * width;
    let norm = 0;
    for (let k = 0; k < width; k++) {
      const value = i < originals ? random() : data[original + k]! + noise * random();
      data[i * width + k] = value;
      norm += value * value;
    }
    for (let k = 0; k < width; k++) data[i * width + k]! /= Math.sqrt(norm);
  }
  return { width, count, data };
}
