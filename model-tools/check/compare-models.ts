import type { PixelInput } from "../../contract/model-spec.ts";

/** Agreement of the embeddings of two models. */
export interface Agreement {
  /** Cosine of the two embeddings of each image. */
  readonly minCosine: number;
  readonly meanCosine: number;
  /** Largest difference of a value, relative to the largest value. */
  readonly maxDifference: number;
}

/** Compares the embeddings of the same images by two models. */
export function compareModels(
  expected: readonly Float32Array[],
  actual: readonly Float32Array[],
): Agreement {
  let [min, sum, difference, largest] = [1, 0, 0, 0];
  for (const [index, vector] of expected.entries()) {
    const got = actual[index]!;
    let [dot, a, b] = [0, 0, 0];
    for (const [i, value] of vector.entries()) {
      dot += value * got[i]!;
      a += value * value;
      b += got[i]! * got[i]!;
      difference = Math.max(difference, Math.abs(value - got[i]!));
      largest = Math.max(largest, Math.abs(value));
    }
    const cosine = dot / Math.sqrt(a * b);
    min = Number.isFinite(cosine) ? Math.min(min, cosine) : -1;
    sum += cosine;
  }
  return {
    minCosine: min,
    meanCosine: sum / expected.length,
    maxDifference: difference / largest,
  };
}

/** Returns the vector divided by its L2 norm. */
export function unitLength(vector: Float32Array): Float32Array {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length > 0 ? vector.map((value) => value / length) : vector;
}

/**
 * Images that are the same everywhere: waves of other lengths and directions in each channel, edges, and noise. They fill
 * the range of the values as photos do.
 *
 * @returns `[height, width, 3]` 8-bit RGB
 */
export function syntheticImages(
  count: number,
  { width, height }: PixelInput["size"],
): readonly Uint8Array[] {
  return Array.from({ length: count }, (_, index) => {
    const pixels = new Uint8Array(3 * width * height);
    let noise = index + 1;
    for (let at = 0; at < pixels.length; at++) {
      const [x, y] = [Math.floor(at / 3) % width, Math.floor(at / (3 * width))];
      const channel = at % 3;
      noise = (Math.imul(noise, 1_664_525) + 1_013_904_223) | 0;
      const wave = triangle((x * (index + 2 + channel) + y * ((index * 5) % 7)) % 256);
      const edge = (x * (index % 3) + y > 120 + 20 * channel ? 40 : 0) + (index % 2 ? y >> 2 : 0);
      pixels[at] = (wave * 180) / 256 + edge + ((noise >>> 24) * (index % 5)) / 16;
    }
    return pixels;
  });
}

/** Triangle wave of 0 to 255: integer arithmetic, identical on every machine. */
function triangle(phase: number): number {
  return phase < 128 ? 2 * phase : 511 - 2 * phase;
}
