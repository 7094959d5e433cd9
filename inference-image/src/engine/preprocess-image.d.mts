// What TypeScript has to know of preprocess-image.mjs.
import type { ServerEnv } from "../contract/server-env.ts";
import type { ImageHeader } from "./image-header.ts";
import type { JpegDecoder } from "./jpeg.mjs";
import type { Resampler } from "./resample.mjs";

/** What one thread works with. */
export interface Engines {
  readonly resampler: Resampler;
  readonly decoder: JpegDecoder;
}

export function createEngines(module: WebAssembly.Module): Engines;

export interface Task {
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

/** @returns `[side, side, 3]` 8-bit RGB, row-major: `task.into`, or memory of its own */
export function preprocessImage(
  bytes: Uint8Array,
  task: Task,
  engines: Engines,
): Promise<Uint8Array>;
