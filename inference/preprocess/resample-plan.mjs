// Works out which part of an image its embedding needs, and of which samples each sample of the result is made. Plain JavaScript,
// for preprocess-worker.mjs.

/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Taps} Taps */

/** Fractional bits of a weight: 32 less 8 for the sample and 2 for overshoot. */
const precisionBits = 22;

/**
 * Plan for resizing a stored image: the part of it that is needed, and the weights of its columns and rows.
 *
 * EXIF orients before the resize, and the resize rounds between its horizontal and its vertical pass. So a mirrored image
 * has its weights mirrored, and of an image that lies on its side the stored rows are resized first: what comes out is the
 * same, bit for bit, and nothing is turned but the result.
 *
 * @param {import("./image-types.ts").StoredImage} stored
 * @param {number} side
 * @param {number} [reduction] - how many samples of a row or column are decoded to one: what the last one is made of is in
 *   part beyond the edge, where neither number is a multiple
 * @returns {ResizePlan}
 */
export function planOf({ width, height, orientation }, side, reduction = 1) {
  const { onSide, across, down } = geometryOf({ width, height, orientation }, side);
  const columns = tapsOf(across, side, reduction);
  const rows = tapsOf(down, side, reduction);
  const source = { left: columns.start, top: rows.start, width: columns.span, height: rows.span };
  const stored = { width: Math.ceil(width / reduction), height: Math.ceil(height / reduction) };
  return { side, onSide, reduction, stored, source, columns, rows };
}

/**
 * torchvision's `Resize(side)` and `CenterCrop(side)`, down to the rounding, of an image that is seen in its EXIF
 * orientation.
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
  const onSide = orientation >= 5;
  // as seen by who looks at the picture: stored from right to left, or from the bottom up
  const horizontally = [2, 3, 6, 7].includes(orientation);
  const vertically = [3, 4, 7, 8].includes(orientation);
  return {
    onSide,
    across: axis(width, onSide ? vertically : horizontally),
    down: axis(height, onSide ? horizontally : vertically),
  };
}

/**
 * Weights of each of the `side` samples from `begin` on, when `from` samples are resized to `to`.
 *
 * @param {{ from: number, to: number, begin: number, mirrored: boolean }} axis
 * @param {number} side
 * @param {number} reduction
 * @returns {Taps}
 */
function tapsOf({ from: whole, to, begin, mirrored }, side, reduction) {
  const scale = whole / reduction / to;
  const from = Math.ceil(whole / reduction);
  /** What the last sample has beyond the edge comes first, as it is seen from the other end. */
  const edge = mirrored ? from - whole / reduction : 0;
  const filterScale = Math.max(scale, 1);
  const support = 2 * filterScale;
  const most = Math.ceil(support) * 2 + 1;
  const firsts = new Int32Array(side);
  const counts = new Int32Array(side);
  const weights = new Int32Array(side * most);
  const exact = new Float64Array(most);
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
      const place = index * most + (mirrored ? count - 1 - tap : tap);
      weights[place] = fixed < 0 ? fixed - 0.5 : fixed + 0.5;
    }
    firsts[index] = mirrored ? from - first - count : first;
    counts[index] = count;
    start = Math.min(start, firsts[index]);
    end = Math.max(end, firsts[index] + count);
  }
  for (let index = 0; index < side; index++) firsts[index] -= start;
  return { start, span: end - start, firsts, counts, weights, most };
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
