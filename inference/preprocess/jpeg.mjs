// Decodes common JPEG files: baseline, all components in one scan, 4:4:4, 4:2:2, 4:2:0 or grey, at full size with the same samples as
// libjpeg, or at a half, a quarter or an eighth of each side. This is faster than libvips, which takes longer to start than a
// thumbnail to decode, because rows reach the resampler while they are in the processor's cache, and cropped parts are skipped.
// Uncommon and damaged files are left to libvips. The arithmetic is in inference/preprocess/kernel/. Plain JavaScript, for
// preprocess-worker.mjs.
import { readFrame, UnsupportedJpeg } from "./jpeg-header.mjs";

/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
/** @typedef {import("./image-types.ts").Frame} Frame */
/** @typedef {import("./image-types.ts").Rows} Rows */

/** Rows and columns around the required part that upsampling reads: one chroma sample. */
const reach = 2;

/** Free bytes on either side of each line, for a repeated sample and because SIMD reads and writes whole registers. */
const margin = 16;

/** Maximum scan data in bytes, because each thread keeps twice that allocated. A 48 MP photo has about 15 million bytes. */
const maxDataBytes = 16 * 1024 * 1024;

/** MCUs of the only restart interval of an image without restarts. */
const unlimited = 0x7fffffff;

export class JpegDecoder {
  #resampler;

  /** @param {import("./resample.mjs").Resampler} resampler - its kernel's memory receives the decoded rows */
  constructor(resampler) {
    this.#resampler = resampler;
  }

  /**
   * Decodes and resizes like {@link Resampler.resample}.
   *
   * @param {Uint8Array} bytes - the file
   * @param {ResizePlan} plan
   * @param {Uint8Array} [into] - memory for the result, used if it has the right length
   * @returns {{ pixels: Uint8Array, channels: number } | undefined} grey or RGB; `undefined` if libvips must decode the file
   */
  resample(bytes, plan, into) {
    try {
      const frame = readFrame(bytes);
      const { stored, reduction } = plan;
      if (Math.ceil(frame.width / reduction) !== stored.width) return undefined;
      if (Math.ceil(frame.height / reduction) !== stored.height) return undefined;
      const rows = new JpegRows(this.#resampler.kernel, bytes, frame, plan);
      const pixels = this.#resampler.resample(rows, plan, false, into);
      rows.finish();
      return { pixels, channels: rows.channels };
    } catch (error) {
      // RangeError: the header is truncated
      if (error instanceof UnsupportedJpeg || error instanceof RangeError) return undefined;
      throw error;
    }
  }
}

/**
 * Rows of an image that a plan needs, decoded from the top as they are read.
 *
 * @implements {Rows}
 */
class JpegRows {
  /** Column and size of the decoded rows, and first free address in the resampler's memory. */
  left;
  width;
  channels;
  freeAddress;
  #kernel;
  #frame;
  #plan;
  /** Addresses of the file, tables and sample planes in the resampler's memory. */
  #at;
  /** Side of a decoded block of luma and of chroma, in samples. A reduction is applied to chroma's subsampling first. */
  #sides;
  /** Whether chroma is upsampled horizontally, and vertically. */
  #isHalfWide;
  #isHalfHigh;
  /** Lines of luma and of chroma per row of MCUs, and number of lines kept from the row above. */
  #lines;
  #kept;
  /** Bytes per line of luma and of chroma. */
  #strides;
  /** MCUs per row, and the decoded range. */
  #mcus;
  #from;
  #to;
  /** Number of rows of MCUs read. */
  #mcuRows = 0;
  /** Next row of the image. */
  #y;
  #chromaSamples;

  /**
   * @param {import("./image-kernel.mjs").ImageKernel} kernel
   * @param {Uint8Array} bytes
   * @param {Frame} frame
   * @param {ResizePlan} plan
   */
  constructor(kernel, bytes, frame, plan) {
    const { width, height, across, down, components } = frame;
    const { reduction, stored } = plan;
    const { left, top, width: neededWidth } = plan.source;
    if (reduction > 1 && across !== down) throw new UnsupportedJpeg("chroma is not square");
    this.#kernel = kernel;
    this.#frame = frame;
    this.#plan = plan;
    const side = 8 / reduction;
    this.#sides = [side, reduction === 1 ? 8 : side * down];
    this.#isHalfWide = reduction === 1 && across === 2;
    this.#isHalfHigh = reduction === 1 && down === 2;
    const mcuWidth = side * across;
    this.#mcus = Math.ceil(width / (8 * across));
    this.#from = Math.floor(Math.max(0, left - reach) / mcuWidth);
    this.#to = Math.min(this.#mcus, Math.ceil((left + neededWidth + reach) / mcuWidth));
    this.#y = top;
    this.left = this.#from * mcuWidth;
    this.width = Math.min(this.#to * mcuWidth, stored.width) - this.left;
    this.channels = components.length;
    const decoded = this.#to - this.#from;
    this.#chromaSamples = Math.min(decoded * 8, Math.ceil(width / across) - this.#from * 8);
    this.#lines = [side * down, this.#sides[1]];
    this.#kept = this.#isHalfHigh ? 2 : 0;
    this.#strides = [mcuWidth, this.#sides[1]].map((samples) => samples * decoded + 2 * margin);
    const allMcus = this.#mcus * Math.ceil(height / (8 * down));
    this.#start(bytes.subarray(frame.scan), allMcus);
  }

  /** Lays out the kernel's memory and passes it the scan data and the tables. */
  #start(scan, allMcus) {
    if (scan.length > maxDataBytes) throw new UnsupportedJpeg("long data");
    const { code } = this.#kernel;
    const { interval } = this.#frame;
    const intervals = interval === 0 ? 1 : Math.ceil(allMcus / interval);
    const [luma, chroma] = this.#lines.map(
      // chroma has one more line, which repeats its last one
      (lines, index) => (lines + this.#kept + index) * this.#strides[index],
    );
    const { at, end } = this.#kernel.reserve({
      intervals: 4 * intervals,
      file: scan.length + 16,
      data: scan.length + code.DATA_SLACK.value,
      luma,
      blue: chroma,
      red: chroma,
      upsampledBlue: this.#strides[0],
      upsampledRed: this.#strides[0],
    });
    this.#at = { ...at, ends: [at.luma + luma, at.blue + chroma, at.red + chroma] };
    this.freeAddress = end;
    this.#kernel.bytes().set(scan, at.file);
    if (!code.unstuff(at.file, at.file + scan.length, at.data, at.intervals, intervals)) {
      throw new UnsupportedJpeg("restart intervals or end of scan are wrong");
    }
    this.#defineTables();
    this.#defineBlocks();
    code.startScan(at.data, at.intervals, intervals, interval || unlimited);
  }

  #defineTables() {
    const { code } = this.#kernel;
    const bytes = this.#kernel.bytes();
    const defined = new Set();
    const define = (isAc, id, table) => {
      if (defined.has(table)) return;
      defined.add(table);
      bytes.set(table, code.tableInput());
      if (!code.defineTable(isAc, id)) throw new UnsupportedJpeg("invalid Huffman table");
    };
    for (const [index, { dcId, acId, dc, ac, quantisers }] of this.#frame.components.entries()) {
      define(0, dcId, dc);
      define(1, acId, ac);
      new Uint16Array(bytes.buffer, code.quantisersOf(index), 64).set(quantisers);
    }
  }

  #defineBlocks() {
    const { code } = this.#kernel;
    const { components, across, down } = this.#frame;
    code.clearBlocks();
    for (const [index, { dcId, acId }] of components.entries()) {
      const isChroma = Math.min(index, 1);
      const [columns, lines] = isChroma ? [1, 1] : [across, down];
      const [side, stride] = [this.#sides[isChroma], this.#strides[isChroma]];
      const plane = this.#planes[index] + margin + this.#kept * stride;
      for (let line = 0; line < lines; line++) {
        for (let column = 0; column < columns; column++) {
          const samples = plane + side * (line * stride + column);
          const step = side * columns;
          code.addBlock(index, dcId, acId, samples, stride, this.#at.ends[index], step, side);
        }
      }
    }
  }

  get #planes() {
    const { luma, blue, red } = this.#at;
    return [luma, blue, red].slice(0, this.channels);
  }

  /** Writes the next rows to the kernel's memory. Up to 52 bytes after the last row may be overwritten. */
  read(count, to) {
    const [lumaStride, chromaStride] = this.#strides;
    const { code } = this.#kernel;
    const at = this.#at;
    for (let row = 0; row < count; row++, this.#y++, to += this.width * this.channels) {
      while (this.#y >= this.#completeRows()) this.#decodeMcuRow();
      const line = this.#y - (this.#mcuRows - 1) * this.#lines[0] + this.#kept;
      const luma = at.luma + margin + line * lumaStride;
      if (this.channels === 1) {
        this.#kernel.bytes().copyWithin(to, luma, luma + this.width);
        continue;
      }
      const chromaLine =
        (this.#isHalfHigh ? this.#y >> 1 : this.#y) -
        (this.#mcuRows - 1) * this.#lines[1] +
        this.#kept;
      let blue = at.blue + margin + chromaLine * chromaStride;
      let red = at.red + margin + chromaLine * chromaStride;
      if (this.#isHalfWide) {
        const adjacent = this.#y % 2 === 0 ? -chromaStride : chromaStride;
        // rounding as in libjpeg's h2v2_fancy_upsample and h2v1_fancy_upsample
        const [far, even, odd] = this.#isHalfHigh ? [adjacent, 8, 7] : [0, 4, 8];
        const samples = this.#chromaSamples;
        code.upsample(blue, blue + far, samples, even, odd, at.upsampledBlue);
        code.upsample(red, red + far, samples, even, odd, at.upsampledRed);
        [blue, red] = [at.upsampledBlue, at.upsampledRed];
      }
      code.convertToRgb(luma, blue, red, this.width, to);
    }
  }

  /** Reads the remaining rows, because libvips also decodes files that are damaged there. */
  finish() {
    while (this.#mcuRows < this.#allMcuRows()) this.#decodeMcuRow();
    if (!this.#kernel.code.isAtEnd()) throw new UnsupportedJpeg("data after the last block");
  }

  #allMcuRows() {
    return Math.ceil(this.#plan.stored.height / this.#lines[0]);
  }

  /** Number of rows that are complete, including the chroma below them. */
  #completeRows() {
    if (this.#mcuRows === this.#allMcuRows()) return this.#plan.stored.height;
    return this.#mcuRows * this.#lines[0] - this.#kept;
  }

  #decodeMcuRow() {
    const kept = this.#kept;
    const memory = this.#kernel.bytes();
    if (kept > 0 && this.#mcuRows > 0) {
      for (const [index, plane] of this.#planes.entries()) {
        const stride = this.#strides[Math.min(index, 1)];
        const from = plane + this.#lines[Math.min(index, 1)] * stride;
        memory.copyWithin(plane, from, from + kept * stride);
      }
    }
    const { top, height } = this.#plan.source;
    const first = this.#mcuRows * this.#lines[0];
    const isNeeded = first + this.#lines[0] > top - reach && first < top + height + reach;
    const [from, to] = isNeeded ? [this.#from, this.#to] : [0, 0];
    if (!this.#kernel.code.decodeRow(this.#mcus, from, to))
      throw new UnsupportedJpeg("damaged data");
    this.#mcuRows++;
    if (!this.#isHalfWide) return;
    for (const plane of this.#planes.slice(1)) this.#extend(plane, memory);
  }

  /** Repeats the outermost chroma samples for upsampling: at both ends of each line, above the first and below the last line. */
  #extend(plane, memory) {
    const kept = this.#kept;
    const stride = this.#strides[1];
    const line = plane + kept * stride;
    this.#kernel.code.repeatEdges(line + margin, stride, 8, this.#chromaSamples);
    if (kept === 0) return;
    if (this.#mcuRows === 1) memory.copyWithin(line - stride, line, line + stride);
    if (this.#mcuRows === this.#allMcuRows()) {
      const lines = Math.ceil(this.#frame.height / 2) - (this.#mcuRows - 1) * 8;
      const end = line + lines * stride;
      memory.copyWithin(end, end - stride, end);
    }
  }
}
