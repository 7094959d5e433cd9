import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import readExif from "exif-reader";
import sharp from "sharp";
import { decodePhoto } from "./decode-photo.ts";
import { readsHeic } from "./heic.ts";
import { hashSide, perceptualHash } from "./perceptual-hash.ts";

/** What is read of a photo's content. */
export interface PhotoFacts {
  /** Of the file's bytes, lower-case hexadecimal. */
  readonly md5: string;
  /** 64 bits, hexadecimal: `perceptual-hash.ts`. */
  readonly hash: string;
  readonly format: string;
  /** Pixels as shown: after the EXIF orientation is applied. */
  readonly width: number;
  readonly height: number;
  /** When it was taken, as the camera wrote it: `2024-05-01T12:30:00`, local time. */
  readonly takenAt: string | undefined;
}

/** A file larger than this is no photo; it would be read into memory whole. */
const maxFileBytes = 512 * 1024 * 1024;

const formats: ReadonlySet<string> = new Set([
  "jpeg",
  "png",
  "webp",
  ...(readsHeic ? ["heif"] : []),
]);

// every photo is read once
sharp.cache(false);
// photos are read next to each other
sharp.concurrency(1);

/**
 * @param bytes - Size of the file, from its directory entry.
 * @throws {Error} one line, when the file cannot be read or is no photo
 */
export async function readPhoto(path: string, bytes: number): Promise<PhotoFacts> {
  if (bytes === 0) throw new Error("is empty");
  if (bytes > maxFileBytes) throw new Error(`is larger than 512 MiB (${bytes} bytes)`);
  const file = await readFile(path);
  return decodePhoto(file, { failOn: "error" }, async (image, metadata) => {
    const { format, compression, width, height, exif, autoOrient } = metadata;
    if (format === "heif" && compression === "hevc" && !readsHeic) {
      throw new Error("is HEIC, whatever its name: this build of libvips has no HEIC decoder");
    }
    if (!formats.has(format)) throw new Error(`is ${format}, not JPEG, PNG or WebP`);
    const luminance = await image
      .autoOrient()
      .flatten({ background: "white" })
      .toColourspace("b-w")
      .resize(hashSide, hashSide, { fit: "fill" })
      .raw()
      .toBuffer();
    return {
      md5: createHash("md5").update(file).digest("hex"),
      hash: perceptualHash(luminance),
      format,
      width: autoOrient.width ?? width,
      height: autoOrient.height ?? height,
      takenAt: takenAt(exif),
    };
  });
}

function takenAt(exif: Buffer | undefined): string | undefined {
  if (exif === undefined) return undefined;
  try {
    const { Photo, Image } = readExif(exif);
    const time = Photo?.DateTimeOriginal ?? Photo?.DateTimeDigitized ?? Image?.DateTime;
    // cameras without a set clock write 0000:00:00
    if (!(time instanceof Date) || Number.isNaN(time.getTime())) return undefined;
    return time.toISOString().slice(0, 19);
  } catch {
    // broken EXIF: the photo itself can be read
    return undefined;
  }
}
