// What TypeScript has to know of preprocess-image.mjs.
import type { ServerEnv } from "../contract/server-env.ts";
import type { ImageHeader } from "./image-header.ts";
import type { Resampler } from "./resample.mjs";

/** @returns `[side, side, 3]` 8-bit RGB, row-major, in memory of its own */
export function preprocessImage(
  bytes: Uint8Array,
  how: {
    readonly header: ImageHeader;
    readonly mode: ServerEnv["PREPROCESSING"];
    readonly side: number;
  },
  resampler: Resampler,
): Promise<Uint8Array>;
