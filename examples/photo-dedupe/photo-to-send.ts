import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { decodePhoto } from "./decode-photo.ts";

/** A photo, as the database has it. */
export interface PhotoToEmbed {
  readonly id: number;
  readonly path: string;
  readonly md5: string;
  readonly format: string;
  readonly width: number;
  readonly height: number;
}

/** Larger files go out as a smaller copy: a request of 32 stays far below the 64 MiB that the embed server takes. */
const maxBytes = 512 * 1024;
/** What the embed server decodes at most. */
const maxSentPixels = 40_000_000;
/** Shorter side of the copy, twice and more what the model sees. */
const copySide = 512;

const sentFormats = new Set(["jpeg", "png", "webp"]);

/** @throws {Error} one line, when the photo cannot be read or is another one than was scanned */
export async function photoToSend(photo: PhotoToEmbed): Promise<Uint8Array> {
  const file = await readFile(photo.path);
  if (createHash("md5").update(file).digest("hex") !== photo.md5) {
    throw new Error("has changed since the scan: scan again");
  }
  const small = file.length <= maxBytes && photo.width * photo.height <= maxSentPixels;
  if (small && sentFormats.has(photo.format)) return file;
  return decodePhoto(file, {}, (image) =>
    image
      .autoOrient()
      .flatten({ background: "white" })
      .resize(copySide, copySide, { fit: "outside", withoutEnlargement: true })
      .toColourspace("srgb")
      .jpeg({ quality: 95, chromaSubsampling: "4:4:4" })
      .toBuffer(),
  );
}
