// What TypeScript has to know of jpeg.mjs.
import type { Plan, Resampler } from "./resample.mjs";

/** The decoder's code. It can be handed to other threads. */
export function compileJpeg(): WebAssembly.Module;

export class JpegDecoder {
  /** @param resampler - whose memory is decoded into */
  constructor(module: WebAssembly.Module, resampler: Resampler);
  /**
   * @param into - gets the result, where it is as long
   * @returns `[side, side, channels]` of grey or RGB: `into`, or memory of its own; `undefined` where libvips has to look
   */
  resample(
    bytes: Uint8Array,
    plan: Plan,
    into?: Uint8Array,
  ): { readonly pixels: Uint8Array; readonly channels: number } | undefined;
}
