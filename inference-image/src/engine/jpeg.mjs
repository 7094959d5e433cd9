// Decodes the usual JPEG: baseline, all of its colours in one scan, 4:4:4, 4:2:2, 4:2:0 or grey, with the results of
// libjpeg, bit for bit, or at a half, a quarter or an eighth of their size. To start libvips takes longer than to decode a thumbnail; and the rows of a photo go from here to
// the resampler while the processor has them at hand, less what the crop leaves out. Whatever is unusual or damaged is left
// to libvips. The arithmetic is in jpeg.wat. Plain JavaScript, for preprocess-worker.mjs.
import { readFileSync } from "node:fs";

/** @typedef {import("./resample.mjs").Plan} Plan */

/** Of jpeg.wat. */
const tableBytes = 4_512;
const lookupBits = 10;

/** Rows that upsampling looks beyond, and columns: the chroma sample next to what is needed. */
const reach = 2;

/** Free bytes beside each line: a sample is repeated there, and SIMD reads and writes whole registers. */
const margin = 16;

/** Longer data is left to libvips: twice of it stays taken in each thread. A photo of 48 MP has about 15 million bytes. */
const maxDataBytes = 16 * 1024 * 1024;

/** What is left to libvips. */
class UnusualJpeg extends Error {
  name = "UnusualJpeg";
}

/** The decoder's code. It can be handed to other threads. */
export function compileJpeg() {
  return new WebAssembly.Module(readFileSync(new URL("./jpeg.wasm", import.meta.url)));
}

export class JpegDecoder {
  #code;
  #resampler;

  /**
   * @param {WebAssembly.Module} module - {@link compileJpeg}'s
   * @param {import("./resample.mjs").Resampler} resampler - whose memory the rows are written to
   */
  constructor(module, resampler) {
    this.#resampler = resampler;
    this.#code = new WebAssembly.Instance(module, { kernel: { memory: resampler.memory } }).exports;
  }

  /**
   * Resize as {@link Resampler.resample} does.
   *
   * @param {Uint8Array} bytes - the file
   * @param {Plan} plan
   * @param {Uint8Array} [into] - gets the result, where it is as long
   * @returns {{ pixels: Uint8Array, channels: number } | undefined} of grey or RGB; `undefined` where libvips has to look
   */
  resample(bytes, plan, into) {
    try {
      const frame = readFrame(bytes);
      const { stored, reduction } = plan;
      if (Math.ceil(frame.width / reduction) !== stored.width) return undefined;
      if (Math.ceil(frame.height / reduction) !== stored.height) return undefined;
      const rows = new JpegRows(this.#code, this.#resampler, bytes, frame, plan);
      const pixels = this.#resampler.resample(rows, plan, false, into);
      rows.finish();
      return { pixels, channels: rows.channels };
    } catch (error) {
      // the kernel stops where data leads it out of its memory, a view where a header ends too early
      const isOfData = error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
      if (error instanceof UnusualJpeg || isOfData) return undefined;
      throw error;
    }
  }
}

/** The rows of an image that a plan needs, from above, decoded as they are asked for. */
class JpegRows {
  #code;
  #resampler;
  #frame;
  #at;
  #plan;
  /** Samples on a side of a decoded block: of luma, and of chroma, which is not subsampled any more where luma is smaller. */
  #sides;
  /** Chroma is to be upsampled, horizontally and vertically. */
  #isHalfWide;
  #isHalfHigh;
  /** Lines of luma and of chroma in an MCU, and what is kept of those above it. */
  #lines;
  #kept;
  #strides;
  /** MCU columns that are decoded. */
  #from;
  #to;
  /** Rows of MCUs that have been read. */
  #mcuRows = 0;
  #y;
  #chromaSamples;

  constructor(code, resampler, bytes, frame, plan) {
    const { width, height, across, down, components } = frame;
    const { reduction, stored } = plan;
    const { left, top, width: neededWidth } = plan.source;
    if (reduction > 1 && across !== down) throw new UnusualJpeg("chroma is no square");
    const side = 8 / reduction;
    this.#sides = [side, reduction === 1 ? 8 : side * down];
    this.#isHalfWide = reduction === 1 && across === 2;
    this.#isHalfHigh = reduction === 1 && down === 2;
    const mcuWidth = side * across;
    const inRow = Math.ceil(width / (8 * across));
    this.#code = code;
    this.#resampler = resampler;
    this.#frame = frame;
    this.#plan = plan;
    this.#from = Math.floor(Math.max(0, left - reach) / mcuWidth);
    this.#to = Math.min(inRow, Math.ceil((left + neededWidth + reach) / mcuWidth));
    this.#y = top;
    /** What {@link Resampler} asks: which part of the stored image comes, and where the memory is free. */
    this.left = this.#from * mcuWidth;
    this.top = top;
    this.width = Math.min(this.#to * mcuWidth, stored.width) - this.left;
    this.channels = components.length;

    const mcus = this.#to - this.#from;
    this.#chromaSamples = Math.min(mcus * 8, Math.ceil(width / across) - this.#from * 8);
    this.#lines = [side * down, this.#sides[1]];
    this.#kept = this.#isHalfHigh ? 2 : 0;
    this.#strides = [mcuWidth, this.#sides[1]].map((samples) => samples * mcus + 2 * margin);
    const scan = bytes.subarray(frame.scan);
    if (scan.length > maxDataBytes) throw new UnusualJpeg("long data");
    const allMcus = inRow * Math.ceil(height / (8 * down));
    const intervals = frame.interval === 0 ? 1 : Math.ceil(allMcus / frame.interval);
    const { at, end } = resampler.reserve({
      tables: 4 * tableBytes,
      quantisers: 128 * components.length,
      levels: 4 * components.length,
      row: 32 + 32 * 6,
      segments: 4 * intervals,
      file: scan.length + 16,
      // more than the blocks of an MCU can take
      data: scan.length + 2_048,
      luma: (this.#lines[0] + this.#kept) * this.#strides[0],
      // one more: below the last line it is repeated
      blue: (this.#lines[1] + this.#kept + 1) * this.#strides[1],
      red: (this.#lines[1] + this.#kept + 1) * this.#strides[1],
      upsampledBlue: this.#strides[0],
      upsampledRed: this.#strides[0],
    });
    this.#at = at;
    this.end = end;
    this.#write(scan, inRow, intervals);
  }

  #write(scan, inRow, intervals) {
    const at = this.#at;
    const { tables, quantisers, components, across, down, interval } = this.#frame;
    const memory = this.#resampler.bytes();
    memory.set(scan, at.file);
    const found = this.#code.unstuff(
      at.file,
      at.file + scan.length,
      at.data,
      at.segments,
      intervals,
    );
    if (found !== intervals) throw new UnusualJpeg("not its restart intervals, and then its end");
    const words = new Int32Array(memory.buffer);
    const place = (table) => at.tables + tables.indexOf(table) * tableBytes;
    for (const table of tables) writeTable(memory, place(table), table);
    components.forEach((component, index) => {
      words[at.levels / 4 + index] = 0;
      const shorts = new Uint16Array(memory.buffer, at.quantisers + 128 * index, 64);
      shorts.set(quantisers[component.quantiser]);
    });
    const block = (component, line, column) => {
      const isChroma = Math.min(component, 1);
      const stride = this.#strides[isChroma];
      const side = this.#sides[isChroma];
      const first = [at.luma, at.blue, at.red][component] + margin + this.#kept * stride;
      const { dc, ac } = components[component];
      return [
        place(dc),
        place(ac),
        at.levels + 4 * component,
        at.quantisers + 128 * component,
        first + side * (line * stride + column),
        stride,
        component === 0 ? side * across : side,
        side,
      ];
    };
    const blocks = [];
    for (let line = 0; line < down; line++) {
      for (let column = 0; column < across; column++) blocks.push(block(0, line, column));
    }
    for (let component = 1; component < components.length; component++) {
      blocks.push(block(component, 0, 0));
    }
    const everyMcu = interval || 0x7fffffff;
    const row = [inRow, 0, 0, everyMcu, everyMcu, at.segments, blocks.length, 0, ...blocks.flat()];
    words.set(row, at.row / 4);
    this.#code.start(at.data);
  }

  /** The next rows, one behind the other. Up to 52 bytes behind the last one are written as well. */
  read(count, to) {
    const { components } = this.#frame;
    const [lumaStride, chromaStride] = this.#strides;
    const at = this.#at;
    const code = this.#code;
    for (let row = 0; row < count; row++, this.#y++, to += this.width * components.length) {
      while (this.#y >= this.#ready()) this.#more();
      const line = this.#y - (this.#mcuRows - 1) * this.#lines[0] + this.#kept;
      const luma = at.luma + margin + line * lumaStride;
      if (components.length === 1) {
        this.#resampler.bytes().copyWithin(to, luma, luma + this.width);
        continue;
      }
      const chroma =
        (this.#isHalfHigh ? this.#y >> 1 : this.#y) -
        (this.#mcuRows - 1) * this.#lines[1] +
        this.#kept;
      let blue = at.blue + margin + chroma * chromaStride;
      let red = at.red + margin + chroma * chromaStride;
      if (this.#isHalfWide) {
        const beside = this.#y % 2 === 0 ? -chromaStride : chromaStride;
        const [far, even, odd] = this.#isHalfHigh ? [beside, 8, 7] : [0, 4, 8];
        const samples = this.#chromaSamples;
        code.upsample(blue, blue + far, samples, even, odd, at.upsampledBlue);
        code.upsample(red, red + far, samples, even, odd, at.upsampledRed);
        [blue, red] = [at.upsampledBlue, at.upsampledRed];
      }
      code.colour(luma, blue, red, this.width, to);
    }
  }

  /** Read what is left: a file that is damaged there is left to libvips, too. */
  finish() {
    while (this.#mcuRows < this.#allMcuRows()) this.#more();
    const intervals = new Int32Array(this.#resampler.memory.buffer);
    const end = intervals[intervals[this.#at.row / 4 + 5] / 4];
    if (!this.#code.atEnd(end)) throw new UnusualJpeg("data behind the last block");
  }

  #allMcuRows() {
    return Math.ceil(this.#plan.stored.height / this.#lines[0]);
  }

  /** Rows that there is all for. */
  #ready() {
    if (this.#mcuRows === this.#allMcuRows()) return this.#plan.stored.height;
    return this.#mcuRows * this.#lines[0] - this.#kept;
  }

  /** Decode a row of MCUs. */
  #more() {
    const at = this.#at;
    const kept = this.#kept;
    const { components, height } = this.#frame;
    const memory = this.#resampler.bytes();
    const planes = [at.luma, at.blue, at.red].slice(0, components.length);
    if (kept > 0 && this.#mcuRows > 0) {
      planes.forEach((plane, index) => {
        const stride = this.#strides[Math.min(index, 1)];
        const from = plane + this.#lines[Math.min(index, 1)] * stride;
        memory.copyWithin(plane, from, from + kept * stride);
      });
    }
    const { top, height: rows } = this.#plan.source;
    const first = this.#mcuRows * this.#lines[0];
    const isNeeded = first + this.#lines[0] > top - reach && first < top + rows + reach;
    const words = new Int32Array(memory.buffer, at.row, 3);
    words[1] = isNeeded ? this.#from : 0;
    words[2] = isNeeded ? this.#to : 0;
    if (!this.#code.row(at.row)) throw new UnusualJpeg("damaged data");
    this.#mcuRows++;
    if (!this.#isHalfWide) return;
    const stride = this.#strides[1];
    for (const plane of planes.slice(1)) {
      const line = plane + kept * stride;
      this.#code.edges(line + margin, stride, 8, this.#chromaSamples);
      if (kept === 0) continue;
      // beyond the first line and the last one they are repeated
      if (this.#mcuRows === 1) memory.copyWithin(line - stride, line, line + stride);
      if (this.#mcuRows === this.#allMcuRows()) {
        const end = line + (Math.ceil(height / 2) - (this.#mcuRows - 1) * 8) * stride;
        memory.copyWithin(end, end - stride, end);
      }
    }
  }
}

/**
 * What comes before the data.
 *
 * @param {Uint8Array} bytes
 * @throws {UnusualJpeg} where the image is of another kind than this file decodes
 */
function readFrame(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const quantisers = [];
  const dcTables = [];
  const acTables = [];
  let [isJfif, adobe, interval] = [false, undefined, 0];
  let frame;
  let at = 2;
  for (;;) {
    if (at + 4 > bytes.length || bytes[at] !== 0xff) throw new UnusualJpeg("no marker");
    const marker = bytes[at + 1];
    const body = at + 4;
    const end = at + 2 + view.getUint16(at + 2);
    if (end > bytes.length || end < body) throw new UnusualJpeg("cut short");
    const has = (text) => end - body >= 12 && text.every((byte, i) => bytes[body + i] === byte);
    if (marker === 0xe0) isJfif ||= has(jfif);
    else if (marker === 0xee) adobe = has(adobeName) ? bytes[body + 11] : adobe;
    else if (marker === 0xdb) readQuantisers(bytes.subarray(body, end), quantisers);
    else if (marker === 0xc4) readTables(bytes.subarray(body, end), dcTables, acTables);
    else if (marker === 0xdd) interval = view.getUint16(body);
    else if (marker === 0xc0 || marker === 0xc1) {
      if (frame !== undefined) throw new UnusualJpeg("two frames");
      frame = readComponents(
        bytes.subarray(body, end),
        view.getUint16(body + 1),
        view.getUint16(body + 3),
      );
    } else if (marker === 0xda) {
      at = end;
      if (frame === undefined) throw new UnusualJpeg("no frame");
      readScan(bytes.subarray(body, end), frame, quantisers, dcTables, acTables);
      break;
    } else if ((marker < 0xe0 || marker > 0xef) && marker !== 0xfe) {
      throw new UnusualJpeg(`marker ${marker}`);
    }
    at = end;
  }
  const { components } = frame;
  const areNumbered = components.every(({ id }, index) => id === index + 1);
  const isYcc = isJfif || adobe === 1 || (adobe === undefined && areNumbered);
  if (components.length === 3 && !isYcc) throw new UnusualJpeg("other colours");
  const tables = [...new Set(components.flatMap(({ dc, ac }) => [dc, ac]))];
  return { ...frame, tables, quantisers, interval, scan: at };
}

const jfif = [...Buffer.from("JFIF\0")];
const adobeName = [...Buffer.from("Adobe")];

function readComponents(body, height, width) {
  const count = body[5];
  if (body[0] !== 8 || (count !== 1 && count !== 3) || body.length !== 6 + 3 * count) {
    throw new UnusualJpeg("another frame");
  }
  const components = Array.from({ length: count }, (_, index) => ({
    id: body[6 + 3 * index],
    factors: body[7 + 3 * index],
    quantiser: body[8 + 3 * index],
  }));
  // of grey alone there is nothing to interleave
  const factors = count === 1 ? 0x11 : components[0].factors;
  const [across, down] = [factors >> 4, factors & 15];
  const isUsual = [0x11, 0x21, 0x22].includes(factors);
  if (!isUsual || components.slice(1).some((component) => component.factors !== 0x11)) {
    throw new UnusualJpeg("another subsampling");
  }
  // of so few, libjpeg upsamples otherwise
  if (across === 2 && width <= 4) throw new UnusualJpeg("too narrow");
  return { width, height, across, down, components };
}

function readScan(body, { components }, quantisers, dcTables, acTables) {
  const count = components.length;
  const isWhole = body[0] === count && body.length === 4 + 2 * count;
  const isSequential =
    body[1 + 2 * count] === 0 && body[2 + 2 * count] === 63 && body[3 + 2 * count] === 0;
  if (!isWhole || !isSequential) throw new UnusualJpeg("another scan");
  components.forEach((component, index) => {
    component.dc = dcTables[body[2 + 2 * index] >> 4];
    component.ac = acTables[body[2 + 2 * index] & 15];
    const isKnown = component.dc && component.ac && quantisers[component.quantiser];
    if (!isKnown || component.id !== body[1 + 2 * index])
      throw new UnusualJpeg("a table is missing");
  });
}

/** Where the coefficients are that come one after another. */
const zigzag = [
  0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
  13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52,
  45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

function readQuantisers(body, quantisers) {
  for (let at = 0; at < body.length; at += 65) {
    // 16 bits are for 12-bit samples
    if (body[at] > 3 || at + 65 > body.length) throw new UnusualJpeg("another quantiser");
    const values = new Uint16Array(64);
    for (let place = 0; place < 64; place++) values[zigzag[place]] = body[at + 1 + place];
    quantisers[body[at]] = values;
  }
}

function readTables(body, dcTables, acTables) {
  for (let at = 0; at < body.length; ) {
    const counts = body.subarray(at + 1, at + 17);
    const total = counts.reduce((sum, count) => sum + count, 0);
    const symbols = body.subarray(at + 17, at + 17 + total);
    const kind = body[at];
    if (at + 17 + total > body.length || total > 256 || (kind & 0xef) > 3) {
      throw new UnusualJpeg("another table");
    }
    const isDc = kind < 16;
    // bits of a value, in 8-bit images
    if (symbols.some((symbol) => (isDc ? symbol > 11 : (symbol & 15) > 10))) {
      throw new UnusualJpeg("values too large");
    }
    (isDc ? dcTables : acTables)[kind & 15] = { counts, symbols, isDc };
    at += 17 + total;
  }
}

/** Write a Huffman table in the form that jpeg.wat describes. */
function writeTable(memory, at, { counts, symbols, isDc }) {
  const lookup = new Int32Array(memory.buffer, at, 1 << lookupBits);
  const below = new Int32Array(memory.buffer, at + 4_096, 18);
  const before = new Int32Array(memory.buffer, at + 4_168, 18);
  lookup.fill(0);
  memory.set(symbols, at + 4_240);
  let [code, index] = [0, 0];
  for (let length = 1; length <= 16; length++, code <<= 1) {
    before[length] = index - code;
    for (let left = counts[length - 1]; left > 0; left--, code++, index++) {
      // the code of all ones is not used
      if (code + 1 >= 1 << length) throw new UnusualJpeg("more codes than there are");
      const free = lookupBits - length;
      if (free < 0) continue;
      const symbol = symbols[index];
      for (let more = 0; more < 1 << free; more++) {
        lookup[(code << free) + more] = entryOf(symbol, length, free, more, isDc);
      }
    }
    below[length] = code << (16 - length);
  }
  below[17] = 0x10000;
}

/** What is done with a code of `length` bits that `free` bits of value `more` follow. */
function entryOf(symbol, length, free, more, isDc) {
  const size = symbol & 15;
  const zeros = isDc ? 0 : size === 0 && symbol !== 0xf0 ? 112 : symbol >> 4;
  if (size > free) return (size << 16) | (zeros << 8) | 0x80 | length;
  const bits = more >> (free - size);
  const value = bits < (1 << size) >> 1 ? bits - (1 << size) + 1 : bits;
  return (value << 16) | (zeros << 8) | (length + size);
}
