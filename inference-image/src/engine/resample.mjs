// Resizes decoded images as OpenCLIP's validation transform does with Pillow, bit for bit: shortest side to the model's,
// antialiased bicubic, centre crop. The arithmetic is in resample.wat. Plain JavaScript, for preprocess-worker.mjs.
import { readFileSync } from "node:fs";

/** @typedef {import("./resample.mjs").Pixels} Pixels */
/** @typedef {import("./resample.mjs").Plan} Plan */
/** @typedef {import("./resample.mjs").Rows} Rows */
/** @typedef {import("./resample.mjs").Taps} Taps */

/** Fractional bits of a weight: 32 less 8 for the sample and 2 for overshoot. */
const precisionBits = 22;

/** Decoded samples that are in the kernel's memory at a time, in bytes; more where one row of the result needs more. */
const chunkBytes = 256 * 1024;

/** Bytes that may be written behind what is read. */
const overshoot = 64;

/** In the kernel's memory: masks of `premultiply`; what jpeg.wat keeps, up to 256. */
const masksAt = 0;
const firstFree = 256;

/**
 * What becomes of a stored image: which part of it is needed, and what its columns and rows are made of.
 *
 * EXIF orients before the resize, and the resize rounds between its horizontal and its vertical pass. So a mirrored image
 * has its weights mirrored, and of an image that lies on its side the stored rows are resized first: what comes out is the
 * same, bit for bit, and nothing is turned but the result.
 *
 * @param {{ width: number, height: number, orientation: number }} stored
 * @param {number} side
 * @param {number} reduction - how many samples of a row or column are decoded to one: what the last one is made of is in
 *   part beyond the edge, where neither number is a multiple
 * @returns {Plan}
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
 * @param {{ width: number, height: number, orientation: number }} stored
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
 * What each of the `side` samples from `begin` on is made of, when `from` samples are resized to `to`.
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

/**
 * Decoded pixels as {@link Rows}.
 *
 * @param {Pixels} image - the stored image, or what {@link planOf} says that is needed of it
 * @param {Plan} plan
 * @param {Resampler} resampler
 * @returns {Rows}
 */
export function rowsOf({ data, width, height, channels }, { source, stored }, resampler) {
  const isWhole = width === stored.width && height === stored.height;
  if (!isWhole && (width !== source.width || height !== source.height)) {
    throw new Error(`expected ${source.width} × ${source.height} pixels, got ${width} × ${height}`);
  }
  const stride = width * channels;
  let from = isWhole ? source.top * stride : 0;
  return {
    width,
    channels,
    left: isWhole ? 0 : source.left,
    read(count, to) {
      resampler.bytes().set(data.subarray(from, from + count * stride), to);
      from += count * stride;
    },
  };
}

/** The kernel's code. It can be handed to other threads. */
export function compileKernel() {
  return new WebAssembly.Module(readFileSync(new URL("./resample.wasm", import.meta.url)));
}

/**
 * The kernel, with memory of its own. It grows to what the largest image needed: the decoded image passes through it in
 * parts, so that is little more than the image at the width of the result.
 */
export class Resampler {
  #kernel;

  /** @param {WebAssembly.Module} module - {@link compileKernel}'s */
  constructor(module) {
    this.#kernel = new WebAssembly.Instance(module).exports;
  }

  /** Where it works. Decoders may write there what is to be resized. */
  get memory() {
    return this.#kernel.memory;
  }

  /**
   * @param {Rows} rows - of the stored image: all of them that the plan needs
   * @param {Plan} plan
   * @param {boolean} hasAlpha - the last channel is alpha: it weighs the colours while they are resized
   * @param {Uint8Array | undefined} into - gets the result, where it is as long
   * @returns {Uint8Array} `[side, side, channels]`: `into`, or memory of its own
   */
  resample(rows, plan, hasAlpha, into) {
    const length = plan.side * plan.side * rows.channels;
    const result = into?.length === length ? into : new Uint8Array(length);
    if (plan.onSide) this.#rowsFirst(rows, plan, hasAlpha, result);
    else this.#columnsFirst(rows, plan, hasAlpha, result);
    if (hasAlpha) unpremultiply(result, rows.channels);
    return result;
  }

  #columnsFirst(image, { side, source, columns, rows }, hasAlpha, result) {
    const { height } = source;
    const { channels, width } = image;
    const stride = width * channels;
    const lineBytes = side * channels;
    const chunkRows = Math.min(height, Math.max(1, Math.floor(chunkBytes / stride)));
    const columnTable = tableOf(columns, 4, channels);
    const rowTable = tableOf(rows, 2, lineBytes);
    const { at } = this.reserve(
      {
        columns: columnTable.length,
        rows: rowTable.length,
        lines: (height + 1) * lineBytes,
        result: side * lineBytes,
        chunk: chunkRows * stride + overshoot,
      },
      image.end,
    );
    this.#write(at.columns, columnTable);
    this.#write(at.rows, rowTable);
    const chunk = at.chunk + (source.left - image.left) * channels;
    for (let row = 0; row < height; row += chunkRows) {
      const count = Math.min(chunkRows, height - row);
      this.#load(image, count, at.chunk, hasAlpha);
      const line = at.lines + row * lineBytes;
      this.#horizontal(channels, chunk, stride, count, at.columns, side, line);
    }
    this.#kernel.vertical(at.lines, lineBytes, lineBytes, at.rows, side, at.result);
    result.set(this.bytes().subarray(at.result, at.result + result.length));
  }

  #rowsFirst(image, { side, source, columns, rows }, hasAlpha, result) {
    const { channels, width } = image;
    const stride = width * channels;
    const lineBytes = roundUp(stride);
    const groups = overlapping(rows, (8 * chunkBytes) / stride)
      .map((group) => ({ ...group, table: tableOf(rows, 2, stride, group) }))
      .sort((a, b) => a.first - b.first); // from above, however it is mirrored
    const columnTable = tableOf(columns, 4, channels);
    const { at } = this.reserve(
      {
        columns: columnTable.length,
        rows: Math.max(...groups.map(({ table }) => table.length)),
        lines: side * lineBytes,
        result: side * side * channels,
        chunk: (Math.max(...groups.map(({ count }) => count)) + 1) * stride + overshoot,
      },
      image.end,
    );
    this.#write(at.columns, columnTable);
    /** Rows that are there. */
    let [start, end] = [0, 0];
    for (const { from, to, first, count, table } of groups) {
      this.#write(at.rows, table);
      const kept = at.chunk + (first - start) * stride;
      this.bytes().copyWithin(at.chunk, kept, at.chunk + (end - start) * stride);
      this.#load(image, first + count - end, at.chunk + (end - first) * stride, hasAlpha);
      [start, end] = [first, first + count];
      const line = at.lines + from * lineBytes;
      this.#kernel.vertical(at.chunk, stride, lineBytes, at.rows, to - from, line);
    }
    const line = at.lines + (source.left - image.left) * channels;
    this.#horizontal(channels, line, lineBytes, side, at.columns, side, at.result);
    turn(this.bytes().subarray(at.result), side, channels, result);
  }

  #horizontal(channels, from, stride, rows, taps, columns, to) {
    this.#kernel[`horizontal${channels}`](
      from,
      stride,
      rows,
      taps,
      columns,
      to,
      columns * channels,
    );
  }

  /** Bring the next rows of the image into the kernel's memory. */
  #load(image, rows, to, hasAlpha) {
    image.read(rows, to);
    if (!hasAlpha) return;
    const { channels, width } = image;
    this.#write(masksAt, alphaMasks[channels]);
    this.#kernel.premultiply(to, rows * width * channels, masksAt);
  }

  /**
   * Places in the kernel's memory from `end` on, with room behind each for what SIMD reads and writes too much.
   *
   * @param {Record<string, number>} sizes - in bytes
   * @param {number} end
   */
  reserve(sizes, end = firstFree) {
    /** @type {Record<string, number>} */
    const at = {};
    for (const [name, size] of Object.entries(sizes)) {
      at[name] = end;
      end += roundUp(size) + 16;
    }
    const missing = end - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / 65_536));
    return { at, end };
  }

  #write(at, bytes) {
    this.bytes().set(bytes, at);
  }

  /** The memory as it is now: it moves when it grows. */
  bytes() {
    return new Uint8Array(this.#kernel.memory.buffer);
  }
}

/**
 * Taps in the kernel's form: for each sample of the result, an offset, the number of its groups of weights, and the
 * groups, high parts before low parts.
 *
 * @param {Taps} taps
 * @param {number} groupSize
 * @param {number} step - bytes from one source sample to the next
 * @param {{ from: number, to: number, first: number }} part - of the result; the offsets are counted from `first`
 */
function tableOf(
  { firsts, counts, weights, most },
  groupSize,
  step,
  { from, to, first } = { from: 0, to: firsts.length, first: 0 },
) {
  const table = new Int16Array((to - from) * (4 + 2 * groupSize * Math.ceil(most / groupSize)));
  const heads = new Int32Array(table.buffer);
  let at = 0;
  for (let index = from; index < to; index++) {
    const count = counts[index];
    heads[at / 2] = (firsts[index] - first) * step;
    heads[at / 2 + 1] = Math.ceil(count / groupSize);
    at += 4;
    for (let tap = 0; tap < count; at += 2 * groupSize) {
      for (let place = at; place < at + groupSize && tap < count; place++, tap++) {
        const weight = weights[index * most + tap];
        const high = (weight + 0x4000) >> 15;
        table[place] = high;
        table[place + groupSize] = weight - (high << 15);
      }
    }
  }
  return new Uint8Array(table.buffer, 0, at * 2);
}

/**
 * Neighbouring rows of the result in groups: what a group is made of is at most `most` rows of the image, unless one row
 * of the result needs more.
 *
 * @param {Taps} rows
 * @param {number} most
 */
function overlapping({ firsts, counts }, most) {
  const groups = [];
  for (let row = 0; row < firsts.length; row++) {
    const group = groups.at(-1);
    const first = Math.min(firsts[row], group?.first ?? firsts[row]);
    const last = Math.max(firsts[row] + counts[row], group ? group.first + group.count : 0);
    if (group !== undefined && last - first <= most) {
      Object.assign(group, { to: row + 1, first, count: last - first });
    } else {
      groups.push({ from: row, to: row + 1, first: firsts[row], count: counts[row] });
    }
  }
  return groups;
}

/**
 * Columns for rows.
 *
 * @param {Uint8Array} pixels
 * @param {number} side
 * @param {number} channels
 * @param {Uint8Array} result
 */
function turn(pixels, side, channels, result) {
  for (let row = 0, to = 0; row < side; row++) {
    for (let column = 0; column < side; column++) {
      const from = (column * side + row) * channels;
      for (let channel = 0; channel < channels; channel++) result[to++] = pixels[from + channel];
    }
  }
}

/**
 * Back to plain colours, which alpha no longer weighs, in place.
 *
 * @param {Uint8Array} pixels
 * @param {number} channels
 */
function unpremultiply(pixels, channels) {
  for (let pixel = 0; pixel < pixels.length; pixel += channels) {
    const alpha = pixels[pixel + channels - 1];
    if (alpha === 0 || alpha === 255) continue;
    for (let channel = 0; channel < channels - 1; channel++) {
      pixels[pixel + channel] = Math.min(255, Math.trunc((255 * pixels[pixel + channel]) / alpha));
    }
  }
}

/** For `premultiply`: where the alpha of each of 16 bytes is, and which of them are alphas themselves. */
const alphaMasks = Object.fromEntries(
  [2, 4].map((channels) => {
    const bytes = Array.from({ length: 16 }, (_, byte) => byte);
    return [
      channels,
      Uint8Array.from([
        ...bytes.map((byte) => byte - (byte % channels) + channels - 1),
        ...bytes.map((byte) => (byte % channels === channels - 1 ? 0xff : 0)),
      ]),
    ];
  }),
);

/** @param {number} bytes */
function roundUp(bytes) {
  return Math.ceil(bytes / 16) * 16;
}
