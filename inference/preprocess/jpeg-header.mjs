// Reads the segments of a JPEG up to the data of its first scan (ITU-T T.81, annex B). Throws UnsupportedJpeg for anything that
// jpeg.mjs does not decode. Plain JavaScript, for preprocess-worker.mjs.

/** @typedef {import("./image-types.ts").JpegComponent} Component */
/** @typedef {import("./image-types.ts").Frame} Frame */

/** Uncommon or damaged file, which libvips decodes or rejects. */
export class UnsupportedJpeg extends Error {
  name = "UnsupportedJpeg";
}

const SOF0 = 0xc0; // baseline
const SOF1 = 0xc1; // extended sequential, Huffman
const DHT = 0xc4;
const SOS = 0xda;
const DQT = 0xdb;
const DRI = 0xdd;
const APP0 = 0xe0;
const APP14 = 0xee;
const APP15 = 0xef;
const COM = 0xfe;

/** Maximum number of scans of a JPEG, the limit of libvips. Each scan is a pass over the whole image; encoders write about ten. */
export const maxScans = 100;

/**
 * Counts the scans, up to 1000. In entropy-coded data a byte 0xff is followed by 0. A file full of 0xff takes 6 ms per MiB.
 *
 * @param {Uint8Array} bytes
 */
export function scansOf(bytes) {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let scans = 0;
  for (let at = 0; scans < 1_000; scans++) {
    at = file.indexOf("\xff\xda", at, "latin1") + 2;
    if (at < 2) break;
  }
  return scans;
}

/** Identifiers of the segments that name the colour space (libjpeg's default_decompress_parms). */
const jfif = Buffer.from("JFIF\0");
const adobe = Buffer.from("Adobe");

/** Minimum body size of a JFIF or Adobe segment in bytes; the last of these bytes is Adobe's colour transform. */
const colourBytes = 12;
/** Value of Adobe's colour transform: YCbCr. */
const adobeYcc = 1;

/**
 * @param {Uint8Array} bytes
 * @returns {Frame}
 * @throws {UnsupportedJpeg}
 */
export function readFrame(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const read = { quantisers: [], dc: [], ac: [], isJfif: false, interval: 0 };
  let at = 2;
  for (;;) {
    if (at + 4 > bytes.length || bytes[at] !== 0xff) throw new UnsupportedJpeg("no marker");
    const marker = bytes[at + 1];
    const end = at + 2 + view.getUint16(at + 2);
    if (end > bytes.length || end < at + 4) throw new UnsupportedJpeg("a segment is cut short");
    const body = Buffer.from(bytes.buffer, bytes.byteOffset + at + 4, end - at - 4);
    at = end;
    if (readSegment(marker, body, read)) break;
  }
  const { frame, interval, isJfif, transform } = read;
  const { components } = frame;
  const areNumbered = components.every(({ id }, index) => id === index + 1);
  const isYcc = isJfif || transform === adobeYcc || (transform === undefined && areNumbered);
  if (components.length === 3 && !isYcc) throw new UnsupportedJpeg("unsupported colour space");
  return { ...frame, interval, scan: at };
}

/** Adds a segment to what was read. @returns whether the image data follow it */
function readSegment(marker, body, read) {
  if (marker === APP0) read.isJfif ||= isOf(body, jfif);
  else if (marker === APP14) {
    if (isOf(body, adobe)) read.transform = body[colourBytes - 1];
  } else if (marker === DQT) readQuantisers(body, read.quantisers);
  else if (marker === DHT) readTables(body, read);
  else if (marker === DRI) read.interval = body.readUInt16BE(0);
  else if (marker === SOF0 || marker === SOF1) {
    if (read.frame !== undefined) throw new UnsupportedJpeg("two frames");
    read.frame = readComponents(body);
  } else if (marker === SOS) {
    if (read.frame === undefined) throw new UnsupportedJpeg("no frame");
    readScan(body, read.frame.components, read);
    return true;
  } else if ((marker < APP0 || marker > APP15) && marker !== COM) {
    throw new UnsupportedJpeg(`marker ${marker}`);
  }
  return false;
}

function isOf(body, identifier) {
  return body.length >= colourBytes && body.subarray(0, identifier.length).equals(identifier);
}

/** Frame header (T.81, B.2.2). */
function readComponents(body) {
  const count = body[5];
  if (body[0] !== 8 || (count !== 1 && count !== 3) || body.length !== 6 + 3 * count) {
    throw new UnsupportedJpeg("unsupported frame");
  }
  const [height, width] = [body.readUInt16BE(1), body.readUInt16BE(3)];
  const components = Array.from({ length: count }, (_, index) => ({
    id: body[6 + 3 * index],
    factors: body[7 + 3 * index],
    quantiser: body[8 + 3 * index],
  }));
  // a single component is not interleaved, so its factors have no effect (A.2.2)
  const factors = count === 1 ? 0x11 : components[0].factors;
  const isSupported = [0x11, 0x21, 0x22].includes(factors);
  if (!isSupported || components.slice(1).some((component) => component.factors !== 0x11)) {
    throw new UnsupportedJpeg("unsupported subsampling");
  }
  const [across, down] = [factors >> 4, factors & 15];
  // libjpeg upsamples narrow images differently
  if (across === 2 && width <= 4) throw new UnsupportedJpeg("too narrow");
  return { width, height, across, down, components };
}

/** Scan header (T.81, B.2.3): gives each component its tables. */
function readScan(body, components, tables) {
  const count = components.length;
  const isInterleaved = body[0] === count && body.length === 4 + 2 * count;
  const isSequential =
    body[1 + 2 * count] === 0 && body[2 + 2 * count] === 63 && body[3 + 2 * count] === 0;
  if (!isInterleaved || !isSequential) throw new UnsupportedJpeg("unsupported scan");
  for (const [index, component] of components.entries()) {
    if (component.id !== body[1 + 2 * index])
      throw new UnsupportedJpeg("unsupported order of components");
    const [dcId, acId] = [body[2 + 2 * index] >> 4, body[2 + 2 * index] & 15];
    const [dc, ac] = [tables.dc[dcId], tables.ac[acId]];
    const quantisers = tables.quantisers[component.quantiser];
    if (!dc || !ac || !quantisers) throw new UnsupportedJpeg("a table is missing");
    Object.assign(component, { dcId, acId, dc, ac, quantisers });
  }
}

/** Row-major index of each coefficient in zigzag order (T.81, figure A.6). */
const zigzag = [
  0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
  13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52,
  45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/** Quantisation tables (T.81, B.2.4.1). */
function readQuantisers(body, quantisers) {
  for (let at = 0; at < body.length; at += 65) {
    // 16-bit values occur only with 12-bit samples
    if (body[at] > 3 || at + 65 > body.length) throw new UnsupportedJpeg("unsupported quantiser");
    const values = new Uint16Array(64);
    for (let index = 0; index < 64; index++) values[zigzag[index]] = body[at + 1 + index];
    quantisers[body[at]] = values;
  }
}

/** Huffman tables (T.81, B.2.4.2): 16 counts, by length of the code, and the symbols. The kernel checks what they define. */
function readTables(body, { dc, ac }) {
  for (let at = 0; at < body.length; ) {
    const kind = body[at];
    const counts = body.subarray(at + 1, at + 17);
    const symbols = counts.reduce((sum, count) => sum + count, 0);
    const end = at + 17 + symbols;
    if (end > body.length || symbols > 256 || (kind & 0xef) > 3) {
      throw new UnsupportedJpeg("unsupported table");
    }
    (kind < 16 ? dc : ac)[kind & 15] = body.subarray(at + 1, end);
    at = end;
  }
}
