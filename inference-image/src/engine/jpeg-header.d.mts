// Types of jpeg-header.mjs.

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

/** A file that is left to libvips: it is unusual or damaged. */
export class UnusualJpeg extends Error {}

/** @throws {UnusualJpeg} */
export function readFrame(bytes: Uint8Array): Frame;
