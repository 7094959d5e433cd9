// Computes which part of an image contributes to its embedding, and the source samples and weights of each result sample. Plain
// JavaScript, for preprocess-worker.mjs.

/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Taps} Taps */

/** Fractional bits of a weight: 32 - 8 for the sample - 2 for overshoot. */
const precisionBits = 22;

/**
 * Plans the resize of a stored image.
 *
 * The reference orients the image first, and rounds between the horizontal and the vertical pass. To get the same result without
 * orienting the stored image, the weights of a mirrored image are mirrored, and the rows of a transposed one are resized first.
 *
 * @param {import("./image-types.ts").StoredImage} stored
 * @param {number} side
 * @param {number} [reduction] - stored samples per decoded sample along each axis; the last one may extend beyond the edge
 * @returns {ResizePlan}
 */
export function planOf({ width, height, orientation }, side, reduction = 1) {
  const { isTransposed, across, down } = geometryOf({ width, height, orientation }, side);
  const columns = tapsOf(across, side, reduction);
  const rows = tapsOf(down, side, reduction);
  const source = { left: columns.start, top: rows.start, width: columns.span, height: rows.span };
  const stored = { width: Math.ceil(width / reduction), height: Math.ceil(height / reduction) };
  return { side, isTransposed, reduction, stored, source, columns, rows };
}

/**
 * Geometry of torchvision's `Resize(side)` and `CenterCrop(side)` with their rounding, after the EXIF orientation is applied.
 *
 * @param {import("./image-types.ts").StoredImage} stored
 * @param {number} side
 */
function geometryOf({ width, height, orientation }, side) {
  const short = Math.min(width, height);
  const axis = (/** @type {number} */ from, /** @type {boolean} */ mirrored) => {
    const to = from === short ? side : Math.trunc((side * from) / short);
    return { from, to, begin: roundHalfToEven((to - side) / 2), mirrored };
  };
  const isTransposed = orientation >= 5;
  // of the displayed image
  const horizontally = [2, 3, 6, 7].includes(orientation);
  const vertically = [3, 4, 7, 8].includes(orientation);
  return {
    isTransposed,
    across: axis(width, isTransposed ? vertically : horizontally),
    down: axis(height, isTransposed ? horizontally : vertically),
  };
}

/**
 * Computes the weights of `side` result samples starting at `begin`, if `from` samples are resized to `to`.
 *
 * @param {{ from: number, to: number, begin: number, mirrored: boolean }} axis
 * @param {number} side
 * @param {number} reduction
 * @returns {Taps}
 */
function tapsOf({ from: storedLength, to, begin, mirrored }, side, reduction) {
  const scale = storedLength / reduction / to;
  const from = Math.ceil(storedLength / reduction);
  /** Part of the last decoded sample beyond the edge; a mirrored axis starts with it. */
  const edge = mirrored ? from - storedLength / reduction : 0;
  const filterScale = Math.max(scale, 1);
  const support = 2 * filterScale;
  const maxTaps = Math.ceil(support) * 2 + 1;
  const firsts = new Int32Array(side);
  const counts = new Int32Array(side);
  const weights = new Int32Array(side * maxTaps);
  const exact = new Float64Array(maxTaps);
  let [start, end] = [from, 0];
  for (let index = 0; index < side; index++) {
    const centre = edge + (begin + index + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const count = Math.min(from, Math.trunc(centre + support + 0.5)) - first;
    let total = 0;
    for (let tap = 0; tap < count; tap++) {
      exact[tap] = cubic((first + tap - centre + 0.5) / filterScale);
      total += exact[tap];
    }
    for (let tap = 0; tap < count; tap++) {
      const fixed = (exact[tap] / total) * (1 << precisionBits);
      const slot = index * maxTaps + (mirrored ? count - 1 - tap : tap);
      weights[slot] = fixed < 0 ? fixed - 0.5 : fixed + 0.5;
    }
    firsts[index] = mirrored ? from - first - count : first;
    counts[index] = count;
    start = Math.min(start, firsts[index]);
    end = Math.max(end, firsts[index] + count);
  }
  for (let index = 0; index < side; index++) firsts[index] -= start;
  return { start, span: end - start, firsts, counts, weights, maxTaps };
}

/**
 * Keys' cubic with a = -0.5 (Catmull-Rom).
 *
 * @param {number} x
 */
function cubic(x) {
  const a = -0.5;
  const d = Math.abs(x);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return (((d - 5) * d + 8) * d - 4) * a;
  return 0;
}

/**
 * Python's `round()`.
 *
 * @param {number} value
 */
function roundHalfToEven(value) {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}
