import type { ServerEnv } from "../../contract/server-env.ts";
import type { ImageHeader } from "./image-header.ts";

// Types of the JavaScript files that decode and resize images.

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
export interface ResizePlan {
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

/** A component and its tables, as the first scan uses them. */
export interface Component {
  readonly id: number;
  /** Destinations of its Huffman tables, 0 to 3. */
  readonly dcId: number;
  readonly acId: number;
  /** Its Huffman tables: 16 counts, then the symbols. */
  readonly dc: Uint8Array;
  readonly ac: Uint8Array;
  /** 64 values, row-major. */
  readonly quantisers: Uint16Array;
}

/** A baseline image whose components are all in one scan: 4:4:4, 4:2:2, 4:2:0 or grey. */
export interface Frame {
  readonly width: number;
  readonly height: number;
  /** Luma columns and rows to one of chroma. */
  readonly across: number;
  readonly down: number;
  /** One, or luma, blue and red. */
  readonly components: readonly Component[];
  /** MCUs between restarts; 0 is none. */
  readonly interval: number;
  /** Offset of the scan's data in the file. */
  readonly scan: number;
}

export interface PreprocessTask {
  readonly header: ImageHeader;
  readonly mode: ServerEnv["PREPROCESSING"];
  readonly side: number;
  /** Gets the result, where that is no detour. */
  readonly into?: Uint8Array;
  /** Longest time that decoding may take, in milliseconds. */
  readonly timeoutMs: number;
  /** Resolves when so many decoded pixels may be held in memory. A JPEG that is decoded row by row needs none. */
  readonly reserve?: (pixels: number) => Promise<void>;
}
