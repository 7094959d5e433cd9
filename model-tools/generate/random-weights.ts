/**
 * Seeded pseudo-random weights: xoshiro128++ and integer arithmetic only, so the same seed gives the same bytes with every
 * JavaScript engine (`Math.log` and `Math.sin` may differ in the last bit between versions).
 */

/** Floats per piece: 1 MiB. */
const pieceFloats = 262_144;

/** Standard deviation of the sum of four uniform bytes: √(4 × (256² − 1) / 12). */
const byteSumDeviation = 147.800_766_8;
const byteSumMean = 510;

/**
 * Yields nearly normal values with mean 0 and standard deviation `deviation`: the sum of the four bytes of a random word.
 *
 * @param stream - Name of the tensor; the same seed and name give the same values.
 * @returns Pieces of little-endian float32; the buffer is reused between pieces.
 */
export function* normalPieces(
  seed: number,
  stream: string,
  count: number,
  deviation: number,
): Generator<Uint8Array, void, undefined> {
  let [a, b, c, d] = initialState(seed, stream);
  const scale = deviation / byteSumDeviation;
  const piece = new Float32Array(Math.min(count, pieceFloats));
  for (let done = 0; done < count; done += piece.length) {
    const length = Math.min(piece.length, count - done);
    for (let i = 0; i < length; i++) {
      const sum = (a + d) | 0;
      const word = (((sum << 7) | (sum >>> 25)) + a) | 0;
      const shifted = b << 9;
      c ^= a;
      d ^= b;
      b ^= c;
      a ^= d;
      c ^= shifted;
      d = (d << 11) | (d >>> 21);
      const pairs = (word & 0x00ff00ff) + ((word >>> 8) & 0x00ff00ff);
      piece[i] = ((pairs & 0xffff) + (pairs >>> 16) - byteSumMean) * scale;
    }
    yield new Uint8Array(piece.buffer, 0, 4 * length);
  }
}

/** Yields `count` times the same value, as little-endian float32. */
export function* constantPieces(
  count: number,
  value: number,
): Generator<Uint8Array, void, undefined> {
  yield new Uint8Array(new Float32Array(count).fill(value).buffer);
}

/** Returns four words (FNV-1a of the name, then splitmix32), not all zero. */
function initialState(seed: number, stream: string): [number, number, number, number] {
  let hash = 0x811c9dc5 ^ seed;
  for (const byte of Buffer.from(stream, "utf8")) hash = Math.imul(hash ^ byte, 0x01000193);
  const next = () => {
    hash = (hash + 0x9e3779b9) | 0;
    let word = hash ^ (hash >>> 16);
    word = Math.imul(word, 0x21f0aaad);
    word ^= word >>> 15;
    word = Math.imul(word, 0x735a2d97);
    return word ^ (word >>> 15);
  };
  return [next(), next(), next(), next() | 1];
}
