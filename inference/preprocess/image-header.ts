/**
 * Reads the header of a JPEG, PNG or WebP file in microseconds, before its pixels are decoded; libvips would open the file a second
 * time. A header that does not match the pixels makes the decoder fail.
 */

export type ImageType = "jpeg" | "png" | "webp";

export interface ImageHeader {
  readonly type: ImageType;
  /** Stored width and height, before the EXIF orientation is applied. */
  readonly width: number;
  readonly height: number;
  /** EXIF orientation, 1 to 8. */
  readonly orientation: number;
  /** `grey16`: 16 bits per sample without alpha. */
  readonly colours: "grey" | "grey16" | "rgb" | "cmyk";
  /** Whether one colour is marked as transparent in a file without alpha; Pillow ignores it. */
  readonly hasColourKey: boolean;
  /** Whether a JPEG may have several scans, each a pass over the whole image. */
  readonly hasScans: boolean;
  /** Whether a JPEG has 8 bits per sample and Huffman-coded DCT blocks, as almost all do; false for other types. */
  readonly isCommonJpeg: boolean;
}

/** Maximum segments, chunks and padding bytes read, so that no file blocks the event loop. */
const maxSteps = 50_000;

/** Returns the type indicated by the first bytes of a file. */
export function imageTypeOf(bytes: Uint8Array): ImageType | undefined {
  if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return "jpeg";
  if (startsWith(bytes, "\x89PNG\r\n\x1a\n")) return "png";
  if (startsWith(bytes, "RIFF") && startsWith(bytes, "WEBP", 8)) return "webp";
  return undefined;
}

/**
 * @returns `undefined` if the file has another type.
 * @throws {RangeError} if the header is missing, truncated or too long
 */
export function readImageHeader(bytes: Uint8Array): ImageHeader | undefined {
  switch (imageTypeOf(bytes)) {
    case "jpeg":
      return jpegHeader(bytes);
    case "png":
      return pngHeader(bytes);
    case "webp":
      return webpHeader(bytes);
    default:
      return undefined;
  }
}

/** Values of fields that a format does not define. */
const defaults = {
  orientation: 1,
  colours: "rgb",
  hasColourKey: false,
  hasScans: false,
  isCommonJpeg: false,
} as const;

function jpegHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  let orientation: number | undefined;
  /** Whether the first scan contains all components. */
  let isInterleaved = false;
  let frame:
    | { width: number; height: number; components: number; progressive: boolean; common: boolean }
    | undefined;
  for (let at = 2, steps = 0; ; steps++) {
    for (; view.getUint8(at) !== 0xff && steps <= maxSteps; at++) steps++;
    for (; view.getUint8(at) === 0xff && steps <= maxSteps; at++) steps++;
    if (steps > maxSteps) throw new RangeError("no end of the header");
    const marker = view.getUint8(at++);
    if (marker === 0xd9) break;
    if (marker === 0xda) {
      isInterleaved = view.getUint8(at + 2) === frame?.components;
      break;
    }
    if (marker === 0 || marker === 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    const end = at + view.getUint16(at);
    const body = at + 2;
    // start of frame; the three excluded markers are tables
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      frame = {
        height: view.getUint16(body + 1),
        width: view.getUint16(body + 3),
        components: view.getUint8(body + 5),
        progressive: [0xc2, 0xc6, 0xca, 0xce].includes(marker),
        common: marker <= 0xc2 && view.getUint8(body) === 8,
      };
    } else if (marker === 0xe1 && startsWith(bytes, "Exif\0\0", body)) {
      orientation ??= exifOrientation(bytes.subarray(body + 6, end));
    }
    at = end;
  }
  if (frame === undefined) throw new RangeError("no frame before the first scan");
  const { width, height, components, progressive, common } = frame;
  return {
    ...defaults,
    type: "jpeg",
    width,
    height,
    orientation: orientation ?? 1,
    colours: components === 1 ? "grey" : components === 4 ? "cmyk" : "rgb",
    hasScans: progressive || !isInterleaved,
    isCommonJpeg: common,
  };
}

function pngHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  if (!startsWith(bytes, "IHDR", 12)) throw new RangeError("no IHDR at the beginning");
  const kind = view.getUint8(25);
  let orientation: number | undefined;
  let hasColourKey = false;
  // a truncated file is rejected by the decoder
  for (let at = 8, steps = 0; at + 12 <= bytes.length && steps < maxSteps; steps++) {
    const end = at + 8 + view.getUint32(at);
    if (startsWith(bytes, "tRNS", at + 4)) hasColourKey = kind === 0 || kind === 2;
    if (startsWith(bytes, "eXIf", at + 4)) {
      orientation ??= exifOrientation(bytes.subarray(at + 8, end));
    }
    at = end + 4;
  }
  return {
    ...defaults,
    type: "png",
    width: view.getUint32(16),
    height: view.getUint32(20),
    orientation: orientation ?? 1,
    // libvips expands grey with alpha to RGB
    colours: kind !== 0 ? "rgb" : view.getUint8(24) === 16 ? "grey16" : "grey",
    hasColourKey,
  };
}

function webpHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  const header = { ...defaults, type: "webp" } as const;
  const uint24 = (at: number) => view.getUint16(at, true) + (view.getUint8(at + 2) << 16);
  if (startsWith(bytes, "VP8 ", 12)) {
    const side = (at: number) => view.getUint16(at, true) & 0x3fff;
    return { ...header, width: side(26), height: side(28) };
  }
  if (startsWith(bytes, "VP8L", 12)) {
    const sides = view.getUint32(21, true);
    return { ...header, width: 1 + (sides & 0x3fff), height: 1 + ((sides >>> 14) & 0x3fff) };
  }
  if (!startsWith(bytes, "VP8X", 12)) throw new RangeError("no VP8 at the beginning");
  let orientation: number | undefined;
  for (let at = 12, steps = 0; at + 8 <= bytes.length && steps < maxSteps; steps++) {
    const size = view.getUint32(at + 4, true);
    if (startsWith(bytes, "EXIF", at)) {
      // some encoders keep the prefix of a JPEG's EXIF segment
      const start = at + 8 + (startsWith(bytes, "Exif\0\0", at + 8) ? 6 : 0);
      orientation ??= exifOrientation(bytes.subarray(start, at + 8 + size));
    }
    at += 8 + size + (size % 2);
  }
  return {
    ...header,
    width: 1 + uint24(24),
    height: 1 + uint24(27),
    orientation: orientation ?? 1,
  };
}

/**
 * Returns the orientation in an EXIF block, which is a TIFF file; 1 if it is absent or invalid. Only the first block of a file counts,
 * as in libvips and browsers.
 */
function exifOrientation(tiff: Uint8Array): number {
  const view = viewOf(tiff);
  try {
    const little = startsWith(tiff, "II");
    if (!little && !startsWith(tiff, "MM")) return 1;
    const directory = view.getUint32(4, little);
    const entries = view.getUint16(directory, little);
    for (let entry = 0; entry < entries; entry++) {
      const at = directory + 2 + entry * 12;
      if (view.getUint16(at, little) !== 0x0112) continue;
      const long = view.getUint16(at + 2, little) === 4;
      const value = long ? view.getUint32(at + 8, little) : view.getUint16(at + 8, little);
      return value >= 1 && value <= 8 ? value : 1;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return 1;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function startsWith(bytes: Uint8Array, text: string, at = 0): boolean {
  for (let index = 0; index < text.length; index++) {
    if (bytes[at + index] !== text.charCodeAt(index)) return false;
  }
  return true;
}
