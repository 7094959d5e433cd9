// What TypeScript has to know of jpeg.mjs.
import type { Plan, Resampler } from "./resample.mjs";

/** The decoder's code. It can be handed to other threads. */
export function compileJpeg(): WebAssembly.Module;

export class JpegDecoder {
  /** @param resampler - whose memory is decoded into */
  constructor(module: WebAssembly.Module, resampler: Resampler);
  /**
   * @returns `[side, side, channels]` in memory of its own, of grey or RGB; `undefined` where libvips has to look
   */
  resample(
    bytes: Uint8Array,
    plan: Plan,
  ): { readonly pixels: Uint8Array; readonly channels: number } | undefined;
}
