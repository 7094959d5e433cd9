import type { PixelInput } from "../../contract/model-spec.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import type { ImageHeader } from "./image-header.ts";

/** Types of the JavaScript files that decode and resize images. */

/** 8-bit samples, interleaved, row-major. */
export interface PixelBuffer {
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

/** Source samples and weights of each result sample, along one axis. */
export interface Taps {
  /** First stored sample that contributes to the result, and number of samples from it. */
  readonly start: number;
  readonly span: number;
  /** First source sample of each result sample, counted from `start`, and their number. */
  readonly firsts: Int32Array;
  readonly counts: Int32Array;
  /** `maxTaps` weights per result sample, with 22 fractional bits; the unused ones are 0. */
  readonly weights: Int32Array;
  readonly maxTaps: number;
}

export interface Size {
  readonly width: number;
  readonly height: number;
}

/** Crop and weights that resize a stored image. */
export interface ResizePlan {
  /** Size of the result. With `letterbox`, without the fill. */
  readonly size: Size;
  /** Source samples per result sample, the smaller of both axes. */
  readonly scale: number;
  /** Whether EXIF orientation swaps rows and columns: then the result is transposed. */
  readonly isTransposed: boolean;
  /** Whether stored columns are resized before stored rows, so that the number of rows changes first. */
  readonly isRowsFirst: boolean;
  /** Number of stored samples per decoded sample, along each axis: 1, 2, 4 or 8. */
  readonly reduction: number;
  /** Size of the decoded image. */
  readonly stored: Size;
  /** Part of the decoded image that contributes to the result. */
  readonly source: Window;
  /** Taps along a stored row. */
  readonly columns: Taps;
  readonly rows: Taps;
}

export interface StoredImage {
  readonly width: number;
  readonly height: number;
  /** EXIF orientation, 1 to 8. */
  readonly orientation: number;
}

/** Rows of a stored image, or the columns of them that a plan needs, read once from top to bottom. */
export interface Rows {
  readonly width: number;
  readonly channels: number;
  /** Stored column of the first sample of a row. */
  readonly left: number;
  /** First free address in the resampler's memory; all of it is free if absent. */
  readonly freeAddress?: number;
  /** Writes the next `count` rows to the resampler's memory. Up to 64 more bytes may be overwritten. */
  read(count: number, to: number): void;
}

/**
 * Colour component of a JPEG, with the Huffman and quantisation tables that the first scan assigns
 * to it.
 */
export interface JpegComponent {
  readonly id: number;
  /** Identifiers of its Huffman tables, 0 to 3. */
  readonly dcId: number;
  readonly acId: number;
  /** Huffman tables: 16 counts, then the symbols. */
  readonly dc: Uint8Array;
  readonly ac: Uint8Array;
  /** 64 values, row-major. */
  readonly quantisers: Uint16Array;
}

/** Baseline image with all components in one scan: 4:4:4, 4:2:2, 4:2:0 or grey. */
export interface Frame {
  readonly width: number;
  readonly height: number;
  /** Luma columns and rows per chroma sample. */
  readonly across: number;
  readonly down: number;
  /** One component, or luma, blue and red. */
  readonly components: readonly JpegComponent[];
  /** MCUs between restart markers; 0 for none. */
  readonly interval: number;
  /** Offset in the file of the compressed data of the first scan, in bytes. */
  readonly scan: number;
}

export interface PreprocessTask {
  readonly header: ImageHeader;
  readonly mode: ServerEnv["PREPROCESSING"];
  readonly input: PixelInput;
  /** Memory for the result. */
  readonly into?: Uint8Array;
  /** Maximum decoding time in milliseconds. */
  readonly timeoutMs: number;
  /** Resolves once this many decoded pixels fit in memory. Not called for a JPEG decoded row by row. */
  readonly reserve?: (pixels: number) => Promise<void>;
}
