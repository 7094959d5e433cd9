/**
 * Reads of a JPEG, PNG or WebP file what has to be known before its pixels are decoded. That takes microseconds; libvips
 * would open the file a second time. It trusts nothing: what a header gets wrong, the decoder refuses.
 */

export type ImageType = "jpeg" | "png" | "webp";

export interface ImageHeader {
  readonly type: ImageType;
  /** Of the pixels as they are stored. */
  readonly width: number;
  readonly height: number;
  /** EXIF orientation, 1 to 8: how what is stored has to be turned to be seen. */
  readonly orientation: number;
  readonly colours: "grey" | "rgb" | "cmyk";
  /** One colour that stands for "transparent", in a file without alpha: Pillow does not look at it. */
  readonly colourKey: boolean;
  /** Passes over the whole image that decoding a JPEG takes; 1 for everything else. */
  readonly scans: number;
}

/** Parts of a file that are looked at, and bytes that are skipped between them: no file may keep the event loop waiting. */
const maxSteps = 50_000;

/** The type that the first bytes of a file tell. */
export function imageTypeOf(bytes: Uint8Array): ImageType | undefined {
  if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return "jpeg";
  if (startsWith(bytes, "\x89PNG\r\n\x1a\n")) return "png";
  if (startsWith(bytes, "RIFF") && startsWith(bytes, "WEBP", 8)) return "webp";
  return undefined;
}

/**
 * @returns `undefined` where the file is of another type
 * @throws {RangeError} where it ends before its header does, or has none, or one without end
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

/** The usual case, of which a format says what differs. */
const plain = {
  orientation: 1,
  colours: "rgb",
  colourKey: false,
  scans: 1,
} as const;

function jpegHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  let orientation = 1;
  /** The first scan holds all components. */
  let isWhole = false;
  let frame:
    | { width: number; height: number; components: number; progressive: boolean }
    | undefined;
  for (let at = 2, steps = 0; ; steps++) {
    for (; view.getUint8(at) !== 0xff; at++) steps++;
    for (; view.getUint8(at) === 0xff; at++) steps++;
    if (steps > maxSteps) throw new RangeError("no end of the header");
    const marker = view.getUint8(at++);
    if (marker === 0xd9) break;
    if (marker === 0xda) {
      isWhole = view.getUint8(at + 2) === frame?.components;
      break;
    }
    if (marker === 0 || marker === 1 || (marker >= 0xd0 && marker <= 0xd8)) continue;
    const end = at + view.getUint16(at);
    const body = at + 2;
    // start of frame, less three that are tables
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      frame = {
        height: view.getUint16(body + 1),
        width: view.getUint16(body + 3),
        components: view.getUint8(body + 5),
        progressive: [0xc2, 0xc6, 0xca, 0xce].includes(marker),
      };
    } else if (marker === 0xe1 && startsWith(bytes, "Exif\0\0", body)) {
      orientation = exifOrientation(bytes.subarray(body + 6, end)) ?? orientation;
    }
    at = end;
  }
  if (frame === undefined) throw new RangeError("no frame before the first scan");
  const { width, height, components, progressive } = frame;
  return {
    ...plain,
    type: "jpeg",
    width,
    height,
    orientation,
    colours: components === 1 ? "grey" : components === 4 ? "cmyk" : "rgb",
    scans: progressive || !isWhole ? scansOf(bytes) : 1,
  };
}

/** Starts of a scan, up to 1000. In the data between them a byte 0xff is followed by 0. */
function scansOf(bytes: Uint8Array): number {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let scans = 0;
  for (let at = 0; scans < 1_000; scans++) {
    at = file.indexOf("\xff\xda", at, "latin1") + 2;
    if (at < 2) break;
  }
  return scans;
}

function pngHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  if (!startsWith(bytes, "IHDR", 12)) throw new RangeError("no IHDR at the beginning");
  const kind = view.getUint8(25);
  let orientation = 1;
  let colourKey = false;
  // a file that is cut short is the decoder's to refuse
  for (let at = 8, steps = 0; at + 12 <= bytes.length && steps < maxSteps; steps++) {
    const end = at + 8 + view.getUint32(at);
    if (startsWith(bytes, "tRNS", at + 4)) colourKey = kind === 0 || kind === 2;
    if (startsWith(bytes, "eXIf", at + 4)) {
      orientation = exifOrientation(bytes.subarray(at + 8, end)) ?? orientation;
    }
    at = end + 4;
  }
  return {
    ...plain,
    type: "png",
    width: view.getUint32(16),
    height: view.getUint32(20),
    orientation,
    // with alpha, libvips makes three colours of grey
    colours: kind === 0 ? "grey" : "rgb",
    colourKey,
  };
}

function webpHeader(bytes: Uint8Array): ImageHeader {
  const view = viewOf(bytes);
  const header = { ...plain, type: "webp" } as const;
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
  let orientation = 1;
  for (let at = 12, steps = 0; at + 8 <= bytes.length && steps < maxSteps; steps++) {
    const size = view.getUint32(at + 4, true);
    if (startsWith(bytes, "EXIF", at)) {
      // some writers keep the name that a JPEG's segment begins with
      const start = at + 8 + (startsWith(bytes, "Exif\0\0", at + 8) ? 6 : 0);
      orientation = exifOrientation(bytes.subarray(start, at + 8 + size)) ?? orientation;
    }
    at += 8 + size + (size % 2);
  }
  return { ...header, width: 1 + uint24(24), height: 1 + uint24(27), orientation };
}

/** The orientation in an EXIF block, a small TIFF file; `undefined` where it is not there or makes no sense. */
function exifOrientation(tiff: Uint8Array): number | undefined {
  const view = viewOf(tiff);
  try {
    const little = startsWith(tiff, "II");
    if (!little && !startsWith(tiff, "MM")) return undefined;
    const directory = view.getUint32(4, little);
    const entries = view.getUint16(directory, little);
    for (let entry = 0; entry < entries; entry++) {
      const at = directory + 2 + entry * 12;
      if (view.getUint16(at, little) !== 0x0112) continue;
      const long = view.getUint16(at + 2, little) === 4;
      const value = long ? view.getUint32(at + 8, little) : view.getUint16(at + 8, little);
      return value >= 1 && value <= 8 ? value : undefined;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return undefined;
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
