// Computes which part of an image contributes to its embedding, and the source samples and weights of each result sample. Plain
// JavaScript, for preprocess-worker.mjs.

/** @typedef {import("../../contract/model-spec.ts").PixelInput} PixelInput */
/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Size} Size */
/** @typedef {import("./image-types.ts").Taps} Taps */

/**
 * Resize along one axis of the displayed image: `span` samples from `start` are resized to `to`, of which `count` from `begin` are
 * kept.
 *
 * @typedef {{ length: number, start: number, span: number, to: number, begin: number, count: number }} Axis
 */

/** Fractional bits of a weight: 32 - 8 for the sample - 2 for overshoot. */
const precisionBits = 22;

/**
 * Filters: weight of a source sample by its distance from the centre, and the distance at which it becomes 0. `offset` is the
 * position of a result sample in its cell.
 */
const filters = {
  bicubic: { weightAt: cubic, support: 2, isAntialiased: true, offset: 0.5 },
  bilinear: { weightAt: triangle, support: 1, isAntialiased: true, offset: 0.5 },
  // TensorFlow 1 without half_pixel_centers
  "tensorflow-bilinear": { weightAt: triangle, support: 1, isAntialiased: false, offset: 0 },
};

/**
 * Plans the resize of a stored image.
 *
 * The reference orients the image first, and rounds between the horizontal and the vertical pass. To get the same result without
 * orienting the stored image, the weights of a mirrored image are mirrored, and the passes of a transposed one are exchanged.
 *
 * @param {import("./image-types.ts").StoredImage} stored
 * @param {PixelInput} input
 * @param {number} [reduction] - stored samples per decoded sample along each axis; the last one may extend beyond the edge
 * @returns {ResizePlan}
 */
export function planOf({ width, height, orientation }, input, reduction = 1) {
  const isTransposed = orientation >= 5;
  const { x, y } = geometryOf(
    isTransposed ? { width: height, height: width } : { width, height },
    input,
  );
  const horizontally = tapsOf(x, [2, 3, 6, 7].includes(orientation), input.filter, reduction);
  const vertically = tapsOf(y, [3, 4, 7, 8].includes(orientation), input.filter, reduction);
  const [columns, rows] = isTransposed ? [vertically, horizontally] : [horizontally, vertically];
  return {
    size: { width: x.count, height: y.count },
    scale: Math.min(x.span / x.to, y.span / y.to),
    isTransposed,
    isRowsFirst: isTransposed !== isVerticalFirst(x, y, input.filter),
    reduction,
    stored: { width: Math.ceil(width / reduction), height: Math.ceil(height / reduction) },
    source: { left: columns.start, top: rows.start, width: columns.span, height: rows.span },
    columns,
    rows,
  };
}

/**
 * Returns whether the displayed image is resized vertically before horizontally: from version 13.0 on, Pillow does so if the height
 * shrinks by more than twice as many samples as the width (`ImagingResampleInner`).
 *
 * @param {Axis} x
 * @param {Axis} y
 * @param {PixelInput["filter"]} filter
 */
function isVerticalFirst(x, y, filter) {
  if (filter === "tensorflow-bilinear") return false;
  return y.span > y.to && y.span - y.to > 2 * (x.span - x.to);
}

/**
 * Geometry of the displayed image, rounded like the reference of each mode.
 *
 * @param {Size} image
 * @param {PixelInput} input
 * @returns {{ x: Axis, y: Axis }}
 */
function geometryOf(image, { size, resize }) {
  const short = Math.min(image.width, image.height);
  /** @type {(axis: "width" | "height") => Axis} */
  const axisOf = (axis) => {
    const length = image[axis];
    const whole = { length, start: 0, span: length, begin: 0 };
    const count = size[axis];
    if (resize.mode === "shortest-edge") {
      // torchvision's Resize and CenterCrop
      const { edge } = resize;
      const to = length === short ? edge : Math.trunc((edge * length) / short);
      return { ...whole, to, begin: roundHalfToEven((to - count) / 2), count };
    }
    if (resize.mode === "centre-crop") {
      // TensorFlow's _decode_and_center_crop
      const span = Math.max(1, Math.trunc(resize.fraction * short));
      return { ...whole, start: (length - span + 1) >> 1, span, to: count, count };
    }
    const to = resize.mode === "letterbox" ? fittedLength(image, size, axis) : count;
    return { ...whole, to, count: to };
  };
  return { x: axisOf("width"), y: axisOf("height") };
}

/**
 * Length of an axis of the image when it fits into `size`, as in Pillow's `ImageOps.contain`; at least 1.
 *
 * @param {Size} image
 * @param {Size} size
 * @param {"width" | "height"} axis
 */
function fittedLength(image, size, axis) {
  const other = axis === "width" ? "height" : "width";
  const isLimiting = image[axis] / image[other] >= size[axis] / size[other];
  if (isLimiting) return size[axis];
  return Math.max(1, roundHalfToEven((image[axis] / image[other]) * size[other]));
}

/**
 * Computes the weights of the result samples of an axis.
 *
 * @param {Axis} axis
 * @param {boolean} mirrored - whether the stored image runs the other way
 * @param {PixelInput["filter"]} filter
 * @param {number} reduction
 * @returns {Taps}
 */
function tapsOf(axis, mirrored, filter, reduction) {
  const { to, begin, count: results } = axis;
  const { weightAt, support: radius, isAntialiased, offset } = filters[filter];
  const scale = axis.span / reduction / to;
  const from = Math.ceil(axis.length / reduction);
  /** Start of the region in decoded samples. The part of the last one beyond the edge comes first on a mirrored axis. */
  const origin = (mirrored ? from - axis.length / reduction : 0) + axis.start / reduction;
  const low = Math.floor(origin);
  const samples = Math.ceil(origin + axis.span / reduction) - low;
  const filterScale = isAntialiased ? Math.max(scale, 1) : 1;
  const inverseScale = 1 / filterScale; // multiplied as in Pillow, whose rounding differs from that of a division
  const support = radius * filterScale;
  const maxTaps = Math.ceil(support) * 2 + 1;
  const firsts = new Int32Array(results);
  const counts = new Int32Array(results);
  const weights = new Int32Array(results * maxTaps);
  const exact = new Float64Array(maxTaps);
  let [start, end] = [from, 0];
  for (let index = 0; index < results; index++) {
    const centre = origin - low + (begin + index + offset) * scale + 0.5 - offset;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const count = Math.min(samples, Math.trunc(centre + support + 0.5)) - first;
    let total = 0;
    for (let tap = 0; tap < count; tap++) {
      exact[tap] = weightAt((first + tap - centre + 0.5) * inverseScale);
      total += exact[tap];
    }
    for (let tap = 0; tap < count; tap++) {
      const fixed = (exact[tap] / total) * (1 << precisionBits);
      const slot = index * maxTaps + (mirrored ? count - 1 - tap : tap);
      weights[slot] = fixed < 0 ? fixed - 0.5 : fixed + 0.5;
    }
    firsts[index] = mirrored ? from - low - first - count : low + first;
    counts[index] = count;
    start = Math.min(start, firsts[index]);
    end = Math.max(end, firsts[index] + count);
  }
  for (let index = 0; index < results; index++) firsts[index] -= start;
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

/** @param {number} x */
function triangle(x) {
  return Math.max(0, 1 - Math.abs(x));
}

/**
 * Python's `round()`.
 *
 * @param {number} value
 */
export function roundHalfToEven(value) {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}
