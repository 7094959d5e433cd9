/**
 * Perceptual hash of 64 bits from the discrete cosine transform, as in C. Zauner, "Implementation and Benchmarking of
 * Perceptual Image Hash Functions" (2010), section 3.2.1, and in the library pHash (`ph_dct_imagehash`): luminance at
 * 32 × 32 pixels, DCT-II, the 8 × 8 coefficients of lowest frequency without the first row and column, and one bit per
 * coefficient: whether it is above their median. pHash averages 7 × 7 pixels before it reduces the picture; here the reduction
 * averages.
 */

/** Side of the luminance picture that is hashed. */
export const hashSide = 32;

const frequencies = 8;

/** `cosines[k * 32 + n]`: row k + 1 of the orthonormal DCT-II matrix. */
const cosines = Float64Array.from({ length: frequencies * hashSide }, (_, i) => {
  const [k, n] = [Math.floor(i / hashSide) + 1, i % hashSide];
  return Math.sqrt(2 / hashSide) * Math.cos((Math.PI * (2 * n + 1) * k) / (2 * hashSide));
});

/**
 * @param luminance - `[32, 32]` bytes, row-major.
 * @returns 16 hexadecimal digits, the lowest vertical frequency first.
 */
export function perceptualHash(luminance: Uint8Array): string {
  const coefficients = dct(luminance);
  const sorted = Float64Array.from(coefficients).sort();
  const middle = sorted.length / 2;
  const median = (sorted[middle - 1]! + sorted[middle]!) / 2;
  let hash = "";
  for (let first = 0; first < coefficients.length; first += 4) {
    let digit = 0;
    for (let i = first; i < first + 4; i++) digit = digit * 2 + (coefficients[i]! > median ? 1 : 0);
    hash += digit.toString(16);
  }
  return hash;
}

/** `[8, 8]`: vertical frequencies 1 to 8 in rows, horizontal ones in columns. */
function dct(luminance: Uint8Array): Float64Array {
  return transformed(transformed(luminance, hashSide), frequencies);
}

/** Transforms each column of `[32, width]`; the result is transposed, `[width, 8]`. */
function transformed(values: ArrayLike<number>, width: number): Float64Array {
  const result = new Float64Array(width * frequencies);
  for (let x = 0; x < width; x++) {
    for (let k = 0; k < frequencies; k++) {
      let sum = 0;
      for (let n = 0; n < hashSide; n++) sum += cosines[k * hashSide + n]! * values[n * width + x]!;
      result[x * frequencies + k] = sum;
    }
  }
  return result;
}

/** Returns the two halves of a hash as unsigned 32-bit integers. */
export function hashWords(hash: string): readonly [number, number] {
  return [Number.parseInt(hash.slice(0, 8), 16), Number.parseInt(hash.slice(8), 16)];
}

/** Orientations of a picture: four turns, each also mirrored. */
export const orientationCount = 8;

/** Columns of odd frequency in each row of a half: a mirrored picture negates these coefficients. */
const oddColumns = 0xaa_aa_aa_aa;
/** Rows of odd frequency in a half. */
const oddRows = 0xff_00_ff_00;

/**
 * Returns the hash of the picture in all its orientations, as pairs of halves, the unchanged one first. A mirrored picture negates the
 * coefficients of odd frequency, which flips their bits if the median is close to 0; a transposed one transposes the coefficients.
 */
export function orientations(high: number, low: number): Uint32Array {
  const words = new Uint32Array(2 * orientationCount);
  const transposed = transpose(high, low);
  for (const [turn, [h, l]] of [[high, low] as const, transposed].entries()) {
    for (let mirror = 0; mirror < 4; mirror++) {
      const mask = (mirror & 1 ? oddColumns : 0) ^ (mirror & 2 ? oddRows : 0);
      words[8 * turn + 2 * mirror] = h ^ mask;
      words[8 * turn + 2 * mirror + 1] = l ^ mask;
    }
  }
  return words;
}

/** Transposes 8 × 8 bits in row-major order. */
function transpose(high: number, low: number): readonly [number, number] {
  const result: [number, number] = [0, 0];
  for (let row = 0; row < frequencies; row++) {
    for (let column = 0; column < frequencies; column++) {
      const bit = ((row < 4 ? high : low) >>> (31 - ((row % 4) * 8 + column))) & 1;
      result[column < 4 ? 0 : 1]! |= bit << (31 - ((column % 4) * 8 + row));
    }
  }
  return result;
}

/**
 * Returns the smallest Hamming distance, 0 to 64, between a hash and another in any orientation. It is a metric, because mirroring
 * and transposing keep Hamming distances.
 *
 * @param variants - {@link orientations} of the first hash.
 * @param enough - A distance up to this ends the search for a smaller one.
 */
export function orientedDistance(
  variants: Uint32Array,
  [high, low]: readonly [number, number],
  enough = 0,
): number {
  let least = 64;
  for (let i = 0; i < variants.length; i += 2) {
    let bits = ones(variants[i]! ^ high);
    if (bits >= least) continue;
    bits += ones(variants[i + 1]! ^ low);
    if (bits < least) least = bits;
    if (least <= enough) break;
  }
  return least;
}

/** Returns the Hamming distance of two hashes in their closest orientation, 0 to 64. */
export function hashDistance(a: string, b: string): number {
  return orientedDistance(orientations(...hashWords(a)), hashWords(b));
}

/** Returns the number of set bits of a 32-bit integer. */
export function ones(word: number): number {
  let bits = word - ((word >>> 1) & 0x5555_5555);
  bits = (bits & 0x3333_3333) + ((bits >>> 2) & 0x3333_3333);
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f_0f0f, 0x0101_0101) >>> 24;
}

/** Different bits of the perceptual hashes up to which similar embeddings are confirmed. */
export const defaultConfirmedBits = 20;
