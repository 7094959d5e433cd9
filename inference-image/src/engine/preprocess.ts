import sharp, { type Sharp, type SharpOptions } from "sharp";
import type { EmbedErrorCode } from "../contract/embed-api.ts";
import { imageSide } from "../contract/model-signature.ts";
import type { ServerEnv } from "../contract/server-env.ts";
import {
  enlarge,
  mulDiv255,
  type Pixels,
  premultiply,
  sourceOf,
  unpremultiply,
  type Window,
} from "./enlarge.ts";
import { PixelBudget } from "./pixel-budget.ts";

/** Codes of the embed API that say what is wrong with one image. */
export type ImageErrorCode = Extract<
  EmbedErrorCode,
  "too_large" | "unsupported_media_type" | "undecodable_image"
>;

/** The only error that {@link preprocess} throws. */
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

/** Resized as Pillow does it for OpenCLIP, bit for bit; or with libvips, at a cosine of at least 0.9996 to that. */
export type PreprocessMode = ServerEnv["PREPROCESSING"];

export interface PreprocessorOptions {
  /** Largest image, in pixels, known from its header: nothing is decoded beyond it. */
  readonly maxPixels: number;
  /** @default "exact" */
  readonly mode?: PreprocessMode;
  /**
   * Threads that resize images. They start with the first image.
   *
   * @default 0 - one a core
   */
  readonly threads?: number;
}

export interface RunOptions {
  /** Gives up while the image waits its turn; the signal's reason is thrown. */
  readonly signal?: AbortSignal;
}

/** Turns image files into what the model sees: see {@link createPreprocessor}. */
export interface Preprocessor {
  /**
   * @param bytes - A JPEG, PNG or WebP file; the type is read from its first bytes.
   * @returns `[224, 224, 3]` 8-bit RGB, row-major, in memory of its own.
   * @throws {ImageError}
   */
  run(bytes: Uint8Array, options?: RunOptions): Promise<Uint8Array>;
  /** Takes no more images; those that it took are finished first. */
  close(): Promise<void>;
}

export function createPreprocessor({ maxPixels }: PreprocessorOptions): Preprocessor {
  return {
    run: (bytes, { signal } = {}) => preprocess(bytes, { maxPixels, signal }),
    close: async () => {},
  };
}

export interface PreprocessOptions extends PreprocessorOptions, RunOptions {}

/** Of the process: its images are decoded in the same memory. The limit is `maxPixels`. */
const budget = new PixelBudget();

// no image comes twice
sharp.cache(false);

/**
 * Turn an image file into what the model sees, as OpenCLIP's validation transform does: shortest side to 224 with
 * antialiased bicubic, centre crop, RGB. The normalisation is {@link normalised}'s.
 *
 * As there, with Pillow: alpha weighs the colours while they are resized and is then dropped, not blended; CMYK is
 * converted without a profile; an embedded colour profile is ignored; of an animation the first frame counts. Other
 * than there, the EXIF orientation is applied, so that a photo is embedded as people see it, and a palette is resolved
 * before resizing, not after.
 *
 * @param bytes - A JPEG, PNG or WebP file; the type is read from its first bytes.
 * @returns `[224, 224, 3]` 8-bit RGB, row-major.
 * @throws {ImageError}
 */
export async function preprocess(
  bytes: Uint8Array,
  { maxPixels, signal }: PreprocessOptions,
): Promise<Uint8Array> {
  if (imageTypeOf(bytes) === undefined) {
    throw new ImageError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
  }
  try {
    const input: SharpOptions = {
      // warnings do not refuse a photo; a truncated file does
      failOn: "error",
      ignoreIcc: true,
      limitInputPixels: maxPixels,
    };
    const metadata = await sharp(bytes, { ...input, limitInputPixels: false }).metadata();
    const { width, height } = metadata.autoOrient;
    if (width * height > maxPixels) {
      throw new ImageError(
        "too_large",
        `has ${width} × ${height} pixels, more than the limit of ${maxPixels}`,
      );
    }
    const { size, window } = geometryOf(width, height);
    const colours = metadata.space === "cmyk" ? "cmyk" : "srgb";
    const image = sharp(bytes, input).autoOrient().pipelineColourspace(colours);
    const decode = () =>
      Math.min(width, height) < imageSide
        ? enlarged(
            image.toColourspace(colours),
            { width, height, hasAlpha: metadata.hasAlpha },
            size,
            window,
          )
        : pixelsOf(
            image
              .resize({ ...size, fit: "fill", kernel: "cubic", fastShrinkOnLoad: false })
              .extract(window)
              .removeAlpha()
              .toColourspace(colours),
          );
    const pixels = await budget.during(width * height, maxPixels, decode, signal);
    return colours === "cmyk" ? rgbOfCmyk(pixels) : pixels.data;
  } catch (error) {
    if (error instanceof ImageError || signal?.aborted) throw error;
    throw new ImageError("undecodable_image", `cannot be decoded: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

/** The content type that the first bytes of a file tell. */
export function imageTypeOf(
  bytes: Uint8Array,
): "image/jpeg" | "image/png" | "image/webp" | undefined {
  const ascii = (start: number, end: number) => String.fromCharCode(...bytes.subarray(start, end));
  if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) return "image/jpeg";
  if (bytes[0] === 0x89 && ascii(1, 8) === "PNG\r\n\x1a\n") return "image/png";
  if (ascii(0, 4) === "RIFF" && ascii(8, 12) === "WEBP") return "image/webp";
  return undefined;
}

/** torchvision's `Resize(224)` and `CenterCrop(224)`, down to the rounding: it decides the parity with OpenCLIP. */
function geometryOf(width: number, height: number): { size: Size; window: Window } {
  const short = Math.min(width, height);
  const scaled = (side: number) =>
    side === short ? imageSide : Math.trunc((imageSide * side) / short);
  const size = { width: scaled(width), height: scaled(height) };
  const start = (side: number) => roundHalfToEven((side - imageSide) / 2);
  return {
    size,
    window: {
      left: start(size.width),
      top: start(size.height),
      width: imageSide,
      height: imageSide,
    },
  };
}

interface Size {
  readonly width: number;
  readonly height: number;
}

async function pixelsOf(image: Sharp): Promise<Pixels> {
  const { data, info } = await image.raw({ depth: "uchar" }).toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height, channels: info.channels };
}

/** A small image, resized as Pillow does it, without its alpha. */
async function enlarged(
  image: Sharp,
  whole: Size & { readonly hasAlpha: boolean },
  size: Size,
  window: Window,
): Promise<Pixels> {
  // cut before the pixels come here: a very long image would hold up the event loop
  const pixels = await pixelsOf(image.extract(sourceOf(whole, size, window)));
  const { channels } = pixels;
  const result = { width: window.width, height: window.height };
  if (!whole.hasAlpha) {
    return { ...result, channels, data: enlarge(pixels, whole, size, window) };
  }
  const weighed = enlarge({ ...pixels, data: premultiply(pixels) }, whole, size, window);
  const data = unpremultiply(weighed, channels).filter(
    (_, index) => index % channels < channels - 1,
  );
  return { ...result, channels: channels - 1, data };
}

/** Python's `round()`. */
function roundHalfToEven(value: number): number {
  const floor = Math.floor(value);
  if (value - floor !== 0.5) return Math.round(value);
  return floor % 2 === 0 ? floor : floor + 1;
}

/** Pillow's conversion: each colour is what cyan, magenta or yellow and then black leave of white. */
function rgbOfCmyk({ data, channels }: Pixels): Uint8Array {
  const rgb = new Uint8Array((data.length / channels) * 3);
  for (let from = 0, to = 0; to < rgb.length; from += channels, to += 3) {
    const light = 255 - data[from + 3]!;
    for (let channel = 0; channel < 3; channel++) {
      rgb[to + channel] = light - mulDiv255(data[from + channel]!, light);
    }
  }
  return rgb;
}

/** What the decoder said first. */
function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.split("\n", 1)[0]!.replace(/[:\s]+$/, "");
}
