import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import readExif from "exif-reader";
import { heic, openPhoto } from "./open-photo.ts";
import { hashSide, perceptualHash } from "./perceptual-hash.ts";

/** Properties read from a photo's content. */
export interface PhotoFacts {
  /** SHA-256 of the file, hexadecimal. */
  readonly sha256: string;
  /** Perceptual hash of 64 bits, hexadecimal. */
  readonly hash: string;
  readonly format: string;
  /** Pixels, after the EXIF orientation is applied. */
  readonly width: number;
  readonly height: number;
  /** Local time of the camera, such as `2024-05-01T12:30:00`. */
  readonly takenAt: string | undefined;
}

const formats: ReadonlySet<string> = new Set(["jpeg", "png", "webp", heic]);

/** @throws {Error} one line, if the file cannot be read, is not a photo, or has more than 268 million pixels */
export async function readPhoto(path: string): Promise<PhotoFacts> {
  const file = await readFile(path);
  const { image, format, width, height, exif } = await openPhoto(file, { failOn: "error" });
  if (!formats.has(format)) throw new Error(`is ${format}, not JPEG, PNG, WebP or HEIC`);
  const luminance = await image
    .flatten({ background: "white" })
    .toColourspace("b-w")
    .resize(hashSide, hashSide, { fit: "fill" })
    .raw()
    .toBuffer();
  return {
    sha256: createHash("sha256").update(file).digest("hex"),
    hash: perceptualHash(luminance),
    format,
    width,
    height,
    takenAt: takenAt(exif),
  };
}

function takenAt(exif: Buffer | undefined): string | undefined {
  if (exif === undefined) return undefined;
  try {
    const { Photo, Image } = readExif(exif);
    const time = Photo?.DateTimeOriginal ?? Photo?.DateTimeDigitized ?? Image?.DateTime;
    // a camera without a set clock writes 0000:00:00, for which toISOString throws
    return time instanceof Date ? time.toISOString().slice(0, 19) : undefined;
  } catch {
    return undefined;
  }
}
