import { availableParallelism } from "node:os";
import type { EmbedErrorCode } from "../../contract/embed-api.ts";
import type { ServerEnv } from "../../contract/server-env.ts";
import { Budget } from "../budget.ts";
import { InferenceError } from "../session/types.ts";
import { type ImageHeader, readImageHeader } from "./image-header.ts";
import { PreprocessPool } from "./preprocess-pool.ts";

export { imageTypeOf } from "./image-header.ts";

/** Codes of the embed API that say what is wrong with one image. */
export type ImageErrorCode = Extract<
  EmbedErrorCode,
  "too_large" | "unsupported_media_type" | "undecodable_image"
>;

/** An image that cannot be taken. */
export class ImageError extends Error {
  override readonly name = "ImageError";

  constructor(
    readonly code: ImageErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Resized as Pillow does it for OpenCLIP, bit for bit; or a JPEG decoded smaller first, at a cosine of at least 0.9996. */
export type PreprocessMode = ServerEnv["PREPROCESSING"];

export interface PreprocessorOptions {
  /** Largest image, in pixels, known from its header: nothing is decoded beyond it. */
  readonly maxPixels: number;
  /** @default "exact" */
  readonly mode?: PreprocessMode;
  /**
   * Threads that decode images. They start with the first image.
   *
   * @default 0 - one a core
   */
  readonly threads?: number;
  /**
   * Decoded pixels that all images together hold in memory. A baseline JPEG holds none: it is decoded row by row.
   *
   * @default 0 - threads × maxPixels
   */
  readonly maxPixelsInFlight?: number;
  /**
   * Longest time that decoding one image may take, in milliseconds, without its time in queues.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
}

export interface RunOptions {
  /** Gives up while the image waits its turn; the signal's reason is thrown. */
  readonly signal?: AbortSignal;
  /**
   * What becomes of the file. `taken`: it lies in memory of its own, which the caller needs no more: it moves to the thread that
   * decodes it, and the array is empty afterwards.
   *
   * @default "copied"
   */
  readonly file?: "copied" | "taken";
}

/** Turns image files into what the model sees: see {@link createPreprocessor}. */
export interface Preprocessor {
  /**
   * @param bytes - A JPEG, PNG or WebP file; the type is read from its first bytes.
   * @returns `[224, 224, 3]` 8-bit RGB, row-major, in memory of its own.
   * @throws {ImageError}
   * @throws {InferenceError} `failed` when the thread that worked on it died, `draining` after {@link close}
   */
  run(bytes: Uint8Array, options?: RunOptions): Promise<Uint8Array>;
  /** Give back what {@link run} returned, when nobody reads it any more: a later image gets its memory. */
  recycle(pixels: Uint8Array): void;
  /** Takes no more images; those that it took are finished first. */
  close(): Promise<void>;
}

/**
 * Maximum number of scans of a JPEG. Each is a pass over the whole image, however few bytes it has; encoders write about ten, and
 * libvips rejects more than this.
 */
const maxScans = 100;

/**
 * Turns image files into what the model sees, as OpenCLIP's validation transform does: shortest side to 224 with
 * antialiased bicubic, centre crop, RGB. The normalisation is {@link normalised}'s.
 *
 * As there, with Pillow: alpha weighs the colours while they are resized and is then dropped, not blended; CMYK is
 * converted without a profile; an embedded colour profile is ignored; of an animation the first frame counts. On purpose
 * other than there: the EXIF orientation is applied, so that a photo is embedded as people see it; a palette and two-colour
 * images are resolved before they are resized, where Pillow would take the nearest pixel; of 16 bits of grey the upper 8
 * count, where Pillow would clip all above 255 to white.
 */
export function createPreprocessor(options: PreprocessorOptions): Preprocessor {
  const { maxPixels, mode = "exact" } = options;
  const pool = poolOf(options);
  return {
    run: (bytes, { signal, file } = {}) => inPool(pool, bytes, { maxPixels, mode, signal, file }),
    recycle: (pixels) => pool.recycle(pixels),
    close: () => pool.close(),
  };
}

function poolOf({
  maxPixels,
  maxPixelsInFlight,
  threads,
  timeoutMs = 30_000,
}: PreprocessorOptions): PreprocessPool {
  const count = threads || availableParallelism();
  const budget = new Budget(maxPixelsInFlight || count * maxPixels);
  return new PreprocessPool({ threads: count, budget, timeoutMs });
}

export interface PreprocessOptions extends Pick<RunOptions, "signal"> {
  /** As {@link PreprocessorOptions.maxPixels}. */
  readonly maxPixels: number;
  /** @default "exact" */
  readonly mode?: PreprocessMode;
}

/** Of {@link preprocess}; it never ends, and never keeps the process alive. */
let commonPool: PreprocessPool | undefined;

/** Preprocess an image now and then, as {@link createPreprocessor} does, on threads that the process shares. */
export function preprocess(
  bytes: Uint8Array,
  { maxPixels, mode = "exact", signal }: PreprocessOptions,
): Promise<Uint8Array> {
  commonPool ??= poolOf({ maxPixels });
  return inPool(commonPool, bytes, { maxPixels, mode, signal });
}

async function inPool(
  pool: PreprocessPool,
  bytes: Uint8Array,
  { maxPixels, mode, signal, file }: Required<Omit<PreprocessOptions, "signal">> & RunOptions,
): Promise<Uint8Array> {
  const header = headerOf(bytes);
  const pixels = header.width * header.height;
  if (pixels > maxPixels) {
    const [width, height] =
      header.orientation >= 5 ? [header.height, header.width] : [header.width, header.height];
    throw new ImageError(
      "too_large",
      `has ${width} × ${height} pixels, more than the limit of ${maxPixels}`,
    );
  }
  try {
    return await pool.run({ bytes, taken: file === "taken", header, mode }, signal);
  } catch (error) {
    if (error instanceof InferenceError || signal?.aborted) throw error;
    throw undecodable(reasonOf(error), error);
  }
}

function headerOf(bytes: Uint8Array): ImageHeader {
  let header: ImageHeader | undefined;
  try {
    header = readImageHeader(bytes);
  } catch (error) {
    throw undecodable("its header is incomplete", error);
  }
  if (header === undefined) {
    throw new ImageError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
  }
  if (header.width === 0 || header.height === 0) throw undecodable("it has no pixels");
  if (header.scans > maxScans) {
    throw undecodable(`it is stored in ${header.scans} scans, more than ${maxScans}`);
  }
  return header;
}

function undecodable(reason: string, cause?: unknown): ImageError {
  return new ImageError("undecodable_image", `cannot be decoded: ${reason}`, { cause });
}

/** What the decoder said first. */
function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n", 1)[0]!.replace(/[:\s]+$/, "");
}
