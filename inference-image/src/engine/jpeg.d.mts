// Types of jpeg.mjs.
import type { Plan, Resampler } from "./resample.mjs";

export class JpegDecoder {
  /** @param resampler - in the memory of whose kernel is decoded */
  constructor(resampler: Resampler);
  /**
   * @param into - gets the result if it is as long
   * @returns `[side, side, channels]` of grey or RGB: `into`, or memory of its own; `undefined` if the file is left to libvips
   */
  resample(
    bytes: Uint8Array,
    plan: Plan,
    into?: Uint8Array,
  ): { readonly pixels: Uint8Array; readonly channels: number } | undefined;
}
