import { readImageHeader } from "./image-header.ts";
import { maxScans, scansOf } from "./jpeg-header.mjs";

/** Bytes at the end of a file in which the end of a JPEG must be; cameras append data. */
const maxTrailer = 65_536;

/**
 * Returns whether DALI decodes a file with the pixels of the exact preprocessing: a complete JPEG with 8 bits per sample, in grey or
 * RGB. DALI decodes CMYK, alpha and 16 bits differently, and one file that it cannot decode fails its whole batch.
 *
 * @param maxPixels - Maximum image size; DALI has no limit.
 */
export function isForDali(bytes: Uint8Array, maxPixels: number): boolean {
  try {
    const header = readImageHeader(bytes);
    return (
      header?.isCommonJpeg === true &&
      header.colours !== "cmyk" &&
      (!header.hasScans || scansOf(bytes) <= maxScans) &&
      header.width * header.height <= maxPixels &&
      header.width * header.height > 0 &&
      hasEnd(bytes)
    );
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

/** Returns whether a JPEG has an end-of-image marker near the end of the file; a truncated upload has none. */
function hasEnd(bytes: Uint8Array): boolean {
  const end = bytes.subarray(Math.max(0, bytes.length - maxTrailer));
  return Buffer.from(end.buffer, end.byteOffset, end.byteLength).includes("\xff\xd9", 0, "latin1");
}
