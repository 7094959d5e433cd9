import { availableParallelism } from "node:os";
import type { EmbedErrorCode } from "../../contract/embed-api.ts";
import type { PixelInput } from "../../contract/model-spec.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import { messageOf } from "../../contract/user-error.ts";
import { Budget } from "../threads/budget.ts";
import { InferenceError } from "../threads/inference-error.ts";
import { type ImageHeader, readImageHeader } from "./image-header.ts";
import { PreprocessPool } from "./preprocess-pool.ts";

export { imageTypeOf } from "./image-header.ts";

/** Error codes of the embed API that concern one image. */
export type ImageErrorCode = Extract<
  EmbedErrorCode,
  "too_large" | "unsupported_media_type" | "undecodable_image"
>;

/** Image that is rejected or cannot be decoded. */
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

/**
 * `exact`: the same pixels as the reference of the model. `fast`: a JPEG is decoded at reduced size first; the cosine to `exact` is at
 * least 0.9996. A model without antialiasing is always `exact`.
 */
export type PreprocessMode = ServerEnv["PREPROCESSING"];

export interface PreprocessorOptions {
  /** Maximum image size in pixels, checked against the header before decoding. */
  readonly maxPixels: number;
  /** @default "exact" */
  readonly mode?: PreprocessMode;
  /**
   * Decoding threads, started on demand.
   *
   * @default 0 - one per core
   */
  readonly threads?: number;
  /**
   * Maximum decoded pixels in memory over all images. A baseline JPEG counts 0 because it is decoded row by row.
   *
   * @default 0 - threads × maxPixels
   */
  readonly maxPixelsInFlight?: number;
  /**
   * Maximum time in milliseconds to decode one image, excluding time in queues.
   *
   * @default 30000
   */
  readonly timeoutMs?: number;
}

export interface RunOptions {
  /** Removes the image from the queue when aborted; the signal's reason is thrown. */
  readonly signal?: AbortSignal;
  /**
   * `transferred` moves the file's memory to the decoding thread, which leaves the caller's array empty. The memory must contain
   * nothing else.
   *
   * @default "copied"
   */
  readonly file?: "copied" | "transferred";
}

/** Converts image files to the pixels of any model; see {@link createPreprocessor}. */
export interface Preprocessor {
  /**
   * Converts one image file to the pixels that a model requires.
   *
   * @param bytes - JPEG, PNG or WebP file; the type is detected from its first bytes.
   * @param input - Image input of the model.
   * @returns 8-bit RGB `[height, width, 3]`, row-major. The array spans its whole buffer, which
   *   {@link recycle} requires.
   * @throws {ImageError} if the image is too large, has an unsupported type or cannot be decoded
   * @throws {InferenceError} `failed` if the decoding thread died; `draining` after {@link close}
   * @throws the signal's reason if it was aborted
   */
  run(bytes: Uint8Array, input: PixelInput, options?: RunOptions): Promise<Uint8Array>;
  /** Returns memory obtained from {@link run} for reuse by a later image. */
  recycle(pixels: Uint8Array): void;
  /** Rejects new images, completes the accepted ones and ends the threads. */
  close(): Promise<void>;
}

/**
 * Converts image files to the pixels of a model like the model's reference: resize, crop, RGB. `normalised` applies the normalisation.
 *
 * As with Pillow, CMYK is converted without a profile, embedded colour profiles are ignored, and only the first frame of an animation
 * is used. Alpha is dropped; it weights the colours during the resize, unless images become RGB before. Three differences are
 * deliberate:
 * - The EXIF orientation is applied, so that a photo is embedded as it is displayed.
 * - Palette and two-colour images are always converted to RGB before the resize; Pillow resizes them with nearest neighbour.
 * - 16-bit grey keeps the upper 8 bits; Pillow clips values above 255 to white.
 */
export function createPreprocessor(options: PreprocessorOptions): Preprocessor {
  const { maxPixels, mode = "exact" } = options;
  const pool = poolOf(options);
  return {
    run: (bytes, input, { signal, file } = {}) =>
      inPool(pool, bytes, input, { maxPixels, mode, signal, file }),
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

/** Threads of {@link preprocess}. They are never closed and do not keep the process alive. */
let commonPool: PreprocessPool | undefined;

/** Preprocesses one image like {@link createPreprocessor}, on threads shared by the whole process. */
export function preprocess(
  bytes: Uint8Array,
  input: PixelInput,
  { maxPixels, mode = "exact", signal }: PreprocessOptions,
): Promise<Uint8Array> {
  commonPool ??= poolOf({ maxPixels });
  return inPool(commonPool, bytes, input, { maxPixels, mode, signal });
}

async function inPool(
  pool: PreprocessPool,
  bytes: Uint8Array,
  input: PixelInput,
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
    const transferred = file === "transferred";
    return await pool.run({ bytes, transferred, header, input, mode }, signal);
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
    throw undecodable("its header is incomplete or too long", error);
  }
  if (header === undefined) {
    throw new ImageError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
  }
  if (header.width === 0 || header.height === 0) throw undecodable("it has no pixels");
  return header;
}

function undecodable(reason: string, cause?: unknown): ImageError {
  return new ImageError("undecodable_image", `cannot be decoded: ${reason}`, { cause });
}

/** First line of the decoder's message. */
function reasonOf(error: unknown): string {
  const text = messageOf(error);
  return text.split("\n", 1)[0]!.replace(/[:\s]+$/, "");
}
