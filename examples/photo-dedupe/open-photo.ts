import { once } from "node:events";
import { Worker } from "node:worker_threads";
import sharp, { type Sharp, type SharpOptions } from "sharp";

// every photo is decoded once, and several concurrently
sharp.cache(false);
sharp.concurrency(1);

/** Format of a photo from a telephone of Apple: HEIF with HEVC, which sharp's prebuilt binaries cannot decode. */
export const heic = "heic";

export interface OpenedPhoto {
  readonly image: Sharp;
  /** As sharp names it, or {@link heic}. */
  readonly format: string;
  /** Pixels, after the orientation is applied. */
  readonly width: number;
  readonly height: number;
  readonly exif: Buffer | undefined;
}

/** sharp's default limit. */
const maxPixels = 0x3fff ** 2;

/** @throws {Error} one line, if the file is not a picture or cannot be decoded */
export async function openPhoto(file: Buffer, options: SharpOptions = {}): Promise<OpenedPhoto> {
  const image = sharp(file, { sequentialRead: true, ...options });
  const { format, compression, width, height, exif, autoOrient } = await image.metadata();
  if (compression === "hevc") {
    if (width * height > maxPixels) throw new Error("Input image exceeds pixel limit");
    return { ...(await decodeHeic(file)), format: heic, exif };
  }
  return {
    image: image.autoOrient(),
    format,
    width: autoOrient.width ?? width,
    height: autoOrient.height ?? height,
    exif,
  };
}

interface DecodedPhoto {
  readonly width: number;
  readonly height: number;
  /** RGBA, row by row, in the orientation for display. */
  readonly data: Uint8ClampedArray;
}

async function decodeHeic(file: Buffer): Promise<Pick<OpenedPhoto, "image" | "width" | "height">> {
  const worker = new Worker(new URL("heic-worker.mjs", import.meta.url), { workerData: file });
  try {
    // rejects with the error of the thread
    const [{ width, height, data }] = (await once(worker, "message")) as [DecodedPhoto];
    return { image: sharp(data, { raw: { width, height, channels: 4 } }), width, height };
  } finally {
    await worker.terminate();
  }
}
