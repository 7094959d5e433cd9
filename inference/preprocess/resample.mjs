// Resizes decoded images with the weights of a plan, in fixed point exactly as Pillow. The arithmetic is in
// inference/preprocess/kernel/resample.ts. Plain JavaScript, for preprocess-worker.mjs.
import { roundUp } from "./image-kernel.mjs";

/** @typedef {import("./image-types.ts").PixelBuffer} PixelBuffer */
/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Rows} Rows */
/** @typedef {import("./image-types.ts").Taps} Taps */

/**
 * Maximum bytes of decoded rows in the kernel's memory at a time, if samples are resized along rows
 * first. One row may exceed it.
 */
const columnsFirstChunkBytes = 256 * 1024;
/** The same if samples are resized across rows first. The source rows of one result row may exceed it. */
const rowsFirstChunkBytes = 8 * columnsFirstChunkBytes;

/** Bytes that may be overwritten after the rows read. */
const overshoot = 64;

/**
 * Decoded pixels as {@link Rows}.
 *
 * @param {PixelBuffer} image - the stored image, or only the plan's source part of it
 * @param {ResizePlan} plan
 * @param {Resampler} resampler
 * @returns {Rows}
 */
export function rowsOf({ data, width, height, channels }, { source, stored }, resampler) {
  const isFullImage = width === stored.width && height === stored.height;
  if (!isFullImage && (width !== source.width || height !== source.height)) {
    throw new Error(`expected ${source.width} × ${source.height} pixels, got ${width} × ${height}`);
  }
  const stride = width * channels;
  let from = isFullImage ? source.top * stride : 0;
  return {
    width,
    channels,
    left: isFullImage ? 0 : source.left,
    read(count, to) {
      resampler.kernel.bytes().set(data.subarray(from, from + count * stride), to);
      from += count * stride;
    },
  };
}

/** Resizes images with the kernel. The decoded image passes through its memory in chunks. */
export class Resampler {
  /** Decoders may write rows directly to its memory. */
  kernel;

  /** @param {import("./image-kernel.mjs").ImageKernel} kernel */
  constructor(kernel) {
    this.kernel = kernel;
  }

  /**
   * @param {Rows} rows - rows of the stored image that the plan needs
   * @param {ResizePlan} plan
   * @param {boolean} hasAlpha - whether the last channel is alpha, which weights the colours during the resize
   * @param {Uint8Array} [into] - memory for the result, used if it has the right length
   * @returns {Uint8Array} `[height, width, channels]`
   */
  resample(rows, plan, hasAlpha, into) {
    const length = plan.size.width * plan.size.height * rows.channels;
    const result = into?.length === length ? into : new Uint8Array(length);
    const { size, isTransposed } = plan;
    const resized = isTransposed ? { width: size.height, height: size.width } : size;
    const at = plan.isRowsFirst
      ? this.#rowsFirst(rows, plan, resized, hasAlpha)
      : this.#columnsFirst(rows, plan, resized, hasAlpha);
    const pixels = this.kernel.bytes().subarray(at, at + length);
    if (isTransposed) transpose(pixels, size, rows.channels, result);
    else result.set(pixels);
    if (hasAlpha) unpremultiply(result, rows.channels);
    return result;
  }

  /** Returns the address of the result, which has the size `size` before the transposition. */
  #columnsFirst(image, { source, columns, rows }, size, hasAlpha) {
    const { height } = source;
    const { channels, width } = image;
    const stride = width * channels;
    const lineBytes = size.width * channels;
    const chunkRows = Math.min(height, Math.max(1, Math.floor(columnsFirstChunkBytes / stride)));
    const columnTable = tableOf(columns, 4, channels);
    const rowTable = tableOf(rows, 2, lineBytes);
    const { at } = this.kernel.reserve(
      {
        columns: columnTable.length,
        rows: rowTable.length,
        lines: (height + 1) * lineBytes,
        result: size.height * lineBytes,
        chunk: chunkRows * stride + overshoot,
      },
      image.freeAddress,
    );
    this.#write(at.columns, columnTable);
    this.#write(at.rows, rowTable);
    const chunk = at.chunk + (source.left - image.left) * channels;
    for (let row = 0; row < height; row += chunkRows) {
      const count = Math.min(chunkRows, height - row);
      this.#load(image, count, at.chunk, hasAlpha);
      const line = at.lines + row * lineBytes;
      this.#horizontal(channels, chunk, stride, count, at.columns, size.width, line);
    }
    this.kernel.code.vertical(at.lines, lineBytes, lineBytes, at.rows, size.height, at.result);
    return at.result;
  }

  /** As {@link #columnsFirst}. */
  #rowsFirst(image, { source, columns, rows }, size, hasAlpha) {
    const { channels, width } = image;
    const stride = width * channels;
    const lineBytes = roundUp(stride);
    const groups = groupRows(rows, rowsFirstChunkBytes / stride)
      .map((group) => ({ ...group, table: tableOf(rows, 2, stride, group) }))
      .sort((a, b) => a.first - b.first); // top to bottom, even if mirrored
    const columnTable = tableOf(columns, 4, channels);
    const { at } = this.kernel.reserve(
      {
        columns: columnTable.length,
        rows: Math.max(...groups.map(({ table }) => table.length)),
        lines: size.height * lineBytes,
        result: size.width * size.height * channels,
        chunk: (Math.max(...groups.map(({ count }) => count)) + 1) * stride + overshoot,
      },
      image.freeAddress,
    );
    this.#write(at.columns, columnTable);
    /** Range of rows in the chunk. */
    let [start, end] = [0, 0];
    for (const { from, to, first, count, table } of groups) {
      this.#write(at.rows, table);
      for (; end < first; end++) image.read(1, at.chunk); // no result row needs it
      const kept = at.chunk + (first - start) * stride;
      this.kernel.bytes().copyWithin(at.chunk, kept, at.chunk + (end - start) * stride);
      this.#load(image, first + count - end, at.chunk + (end - first) * stride, hasAlpha);
      [start, end] = [first, first + count];
      const line = at.lines + from * lineBytes;
      this.kernel.code.vertical(at.chunk, stride, lineBytes, at.rows, to - from, line);
    }
    const line = at.lines + (source.left - image.left) * channels;
    this.#horizontal(channels, line, lineBytes, size.height, at.columns, size.width, at.result);
    return at.result;
  }

  // biome-ignore lint/complexity/useMaxParams: the arguments of the function in WebAssembly
  #horizontal(channels, from, stride, rows, taps, columns, to) {
    this.kernel.code[`horizontal${channels}`](from, stride, rows, taps, columns, to);
  }

  /** Reads the next rows of the image into the kernel's memory. */
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
 * Encodes taps for the kernel: per result sample an offset, the number of groups of weights, and the groups with their high parts
 * before their low parts.
 *
 * @param {Taps} taps
 * @param {number} groupSize
 * @param {number} step - bytes from one source sample to the next
 * @param {{ from: number, to: number, first: number }} part - range of result samples; offsets are relative to `first`
 */
function tableOf(
  { firsts, counts, weights, maxTaps },
  groupSize,
  step,
  { from, to, first } = { from: 0, to: firsts.length, first: 0 },
) {
  const table = new Int16Array((to - from) * (4 + 2 * groupSize * Math.ceil(maxTaps / groupSize)));
  const heads = new Int32Array(table.buffer);
  let at = 0;
  for (let index = from; index < to; index++) {
    const count = counts[index];
    heads[at / 2] = (firsts[index] - first) * step;
    heads[at / 2 + 1] = Math.ceil(count / groupSize);
    at += 4;
    for (let tap = 0; tap < count; at += 2 * groupSize) {
      for (let slot = at; slot < at + groupSize && tap < count; slot++, tap++) {
        const weight = weights[index * maxTaps + tap];
        const high = (weight + 0x4000) >> 15;
        table[slot] = high;
        table[slot + groupSize] = weight - (high << 15);
      }
    }
  }
  return new Uint8Array(table.buffer, 0, at * 2);
}

/**
 * Groups adjacent result rows, so that each group needs at most `maxRows` source rows, unless a single result row needs more.
 *
 * @param {Taps} rows
 * @param {number} maxRows
 */
function groupRows({ firsts, counts }, maxRows) {
  const groups = [];
  for (let row = 0; row < firsts.length; row++) {
    const group = groups.at(-1);
    const first = Math.min(firsts[row], group?.first ?? firsts[row]);
    const last = Math.max(firsts[row] + counts[row], group ? group.first + group.count : 0);
    if (group !== undefined && last - first <= maxRows) {
      Object.assign(group, { to: row + 1, first, count: last - first });
    } else {
      groups.push({ from: row, to: row + 1, first: firsts[row], count: counts[row] });
    }
  }
  return groups;
}

/**
 * Swaps rows and columns.
 *
 * @param {Uint8Array} pixels - `[width, height, channels]`
 * @param {import("./image-types.ts").Size} size
 * @param {number} channels
 * @param {Uint8Array} result - `[height, width, channels]`
 */
function transpose(pixels, { width, height }, channels, result) {
  for (let row = 0, to = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const from = (column * height + row) * channels;
      for (let channel = 0; channel < channels; channel++) result[to++] = pixels[from + channel];
    }
  }
}

/**
 * Divides colours by alpha, in place.
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
