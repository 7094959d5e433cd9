// Resizes decoded images as OpenCLIP's validation transform does with Pillow, bit for bit: shortest side to the model's,
// antialiased bicubic, centre crop. The arithmetic is in inference/preprocess/kernel/resample.ts. Plain JavaScript, for
// preprocess-worker.mjs.
import { roundUp } from "./image-kernel.mjs";

/** @typedef {import("./image-types.ts").PixelBuffer} PixelBuffer */
/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Rows} Rows */
/** @typedef {import("./image-types.ts").Taps} Taps */

/** Decoded samples that are in the kernel's memory at a time, in bytes; more where one row of the result needs more. */
const chunkBytes = 256 * 1024;

/** Bytes that may be written behind what is read. */
const overshoot = 64;

/**
 * Decoded pixels as {@link Rows}.
 *
 * @param {PixelBuffer} image - the stored image, or what {@link planOf} says that is needed of it
 * @param {ResizePlan} plan
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
      resampler.kernel.bytes().set(data.subarray(from, from + count * stride), to);
      from += count * stride;
    },
  };
}

/** Resizes images with the kernel: the decoded image passes through its memory in parts. */
export class Resampler {
  /** Decoders may write to its memory what is to be resized. */
  kernel;

  /** @param {import("./image-kernel.mjs").ImageKernel} kernel */
  constructor(kernel) {
    this.kernel = kernel;
  }

  /**
   * @param {Rows} rows - of the stored image: all of them that the plan needs
   * @param {ResizePlan} plan
   * @param {boolean} hasAlpha - the last channel is alpha: it weighs the colours while they are resized
   * @param {Uint8Array} [into] - gets the result, where it is as long
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
    const { at } = this.kernel.reserve(
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
    this.kernel.code.vertical(at.lines, lineBytes, lineBytes, at.rows, side, at.result);
    result.set(this.kernel.bytes().subarray(at.result, at.result + result.length));
  }

  #rowsFirst(image, { side, source, columns, rows }, hasAlpha, result) {
    const { channels, width } = image;
    const stride = width * channels;
    const lineBytes = roundUp(stride);
    const groups = overlapping(rows, (8 * chunkBytes) / stride)
      .map((group) => ({ ...group, table: tableOf(rows, 2, stride, group) }))
      .sort((a, b) => a.first - b.first); // from above, however it is mirrored
    const columnTable = tableOf(columns, 4, channels);
    const { at } = this.kernel.reserve(
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
      this.kernel.bytes().copyWithin(at.chunk, kept, at.chunk + (end - start) * stride);
      this.#load(image, first + count - end, at.chunk + (end - first) * stride, hasAlpha);
      [start, end] = [first, first + count];
      const line = at.lines + from * lineBytes;
      this.kernel.code.vertical(at.chunk, stride, lineBytes, at.rows, to - from, line);
    }
    const line = at.lines + (source.left - image.left) * channels;
    this.#horizontal(channels, line, lineBytes, side, at.columns, side, at.result);
    turn(this.kernel.bytes().subarray(at.result), side, channels, result);
  }

  #horizontal(channels, from, stride, rows, taps, columns, to) {
    this.kernel.code[`horizontal${channels}`](from, stride, rows, taps, columns, to);
  }

  /** Bring the next rows of the image into the kernel's memory. */
  #load(image, rows, to, hasAlpha) {
    image.read(rows, to);
    if (!hasAlpha) return;
    const { channels, width } = image;
    this.kernel.code.premultiply(to, rows * width * channels, channels);
  }

  #write(at, bytes) {
    this.kernel.bytes().set(bytes, at);
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
