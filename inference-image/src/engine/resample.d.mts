// What TypeScript has to know of resample.mjs.
import type { ImageKernel } from "./image-kernel.mjs";

/** 8-bit samples, interleaved, row-major. */
export interface Pixels {
  readonly data: Uint8Array;
  readonly width: number;
  readonly height: number;
  readonly channels: number;
}

export interface Window {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** What each sample of the result is made of, along one axis. */
export interface Taps {
  /** Where the part of the stored samples begins that is needed, and how long it is. */
  readonly start: number;
  readonly span: number;
  /** For each sample of the result, the first of its source samples, counted from `start`, and their number. */
  readonly firsts: Int32Array;
  readonly counts: Int32Array;
  /** Room for `most` weights for each sample of the result, with 22 fractional bits. */
  readonly weights: Int32Array;
  readonly most: number;
}

/** What becomes of a stored image. */
export interface Plan {
  /** Width and height of the result. */
  readonly side: number;
  /** The image is stored on its side: its rows are resized first, and the result is turned. */
  readonly onSide: boolean;
  /** How many samples of a row or column are decoded to one. */
  readonly reduction: number;
  /** Size of what is decoded. */
  readonly stored: { readonly width: number; readonly height: number };
  /** The part of the stored image that the result is made of. */
  readonly source: Window;
  /** Along a stored row, which is a column of the result where the image is on its side. */
  readonly columns: Taps;
  readonly rows: Taps;
}

export interface StoredImage {
  readonly width: number;
  readonly height: number;
  /** EXIF orientation, 1 to 8. */
  readonly orientation: number;
}

/** Rows of a stored image, or as much of each as a plan needs, read once from above. */
export interface Rows {
  readonly width: number;
  readonly channels: number;
  /** The stored column that a row begins with. */
  readonly left: number;
  /** The resampler's memory is free from here on; its beginning is where this is left out. */
  readonly end?: number;
  /** Write the next `count` rows to the resampler's memory, and up to 64 bytes more. */
  read(count: number, to: number): void;
}

export function rowsOf(image: Pixels, plan: Plan, resampler: Resampler): Rows;

export class Resampler {
  constructor(kernel: ImageKernel);
  /** Decoders may write to its memory what is to be resized. */
  readonly kernel: ImageKernel;
  /**
   * @param hasAlpha - the last channel is alpha
   * @param into - gets the result, where it is as long
   * @returns `[side, side, channels]`: `into`, or memory of its own
   */
  resample(rows: Rows, plan: Plan, hasAlpha: boolean, into?: Uint8Array): Uint8Array;
}
