// Makes of one image file what the model sees: the usual JPEG is decoded here, everything else by libvips; it is resized by
// the kernel. Plain JavaScript, for preprocess-worker.mjs.
import sharp from "sharp";
import { compileJpeg, JpegDecoder } from "./jpeg.mjs";
import { compileKernel, planOf, Resampler, rowsOf } from "./resample.mjs";

/** @typedef {import("./image-header.ts").ImageHeader} ImageHeader */
/** @typedef {import("./preprocess-image.mjs").Modules} Modules */
/** @typedef {import("./preprocess-image.mjs").Engines} Engines */

// no image comes twice
sharp.cache(false);
// images are decoded side by side, each by one thread
sharp.concurrency(1);

/** To let libvips cut something off costs as much as to copy so many pixels. */
const worthCutting = 100_000;

/**
 * Code that can be handed to other threads.
 *
 * @returns {Modules}
 */
export function compileModules() {
  return { kernel: compileKernel(), jpeg: compileJpeg() };
}

/**
 * What one thread works with: it has memory of its own, which grows to what the largest image needed.
 *
 * @param {Modules} modules
 * @returns {Engines}
 */
export function createEngines({ kernel, jpeg }) {
  const resampler = new Resampler(kernel);
  return { resampler, decoder: new JpegDecoder(jpeg, resampler) };
}

/**
 * @param {Uint8Array} bytes
 * @param {{ header: ImageHeader, mode: "exact" | "fast", side: number, into?: Uint8Array }} how - `into` gets the result, unless it
 *   came about otherwise
 * @param {Engines} engines
 * @returns {Promise<Uint8Array>} `[side, side, 3]` 8-bit RGB, row-major: `into`, or memory of its own
 */
export async function preprocessImage(bytes, { header, mode, side, into }, { resampler, decoder }) {
  const plan = planOf(header, side);
  if (header.type === "jpeg") {
    const reduction = mode === "fast" ? reductionOf(header, side) : 1;
    const decoded =
      (reduction > 1 && decoder.resample(bytes, planOf(header, side, reduction), into)) ||
      decoder.resample(bytes, plan, into);
    if (decoded) return rgbOf(decoded.pixels, decoded.channels);
  }
  const { left, top, width, height } = plan.source;
  const image = opened(bytes, header);
  if (header.width * header.height - width * height > worthCutting) {
    image.extract({ left, top, width, height });
  }
  const { data, info } = await image.raw({ depth: "uchar" }).toBuffer({ resolveWithObject: true });
  const { channels } = info;
  const hasAlpha = header.colours !== "cmyk" && (channels === 2 || channels === 4);
  const rows = rowsOf({ data, ...info }, plan, resampler);
  const pixels = resampler.resample(rows, plan, hasAlpha, into);
  if (header.colours === "cmyk") return rgbOfCmyk(pixels);
  return rgbOf(pixels, channels);
}

/**
 * @param {Uint8Array} bytes
 * @param {ImageHeader} header
 */
function opened(bytes, { width, height, colours, colourKey }) {
  const image = sharp(bytes, {
    // warnings do not refuse a photo; a truncated file does
    failOn: "error",
    ignoreIcc: true,
    // known from the header, and checked there: a file that decodes to more lied
    limitInputPixels: width * height,
  });
  if (colours === "cmyk") image.pipelineColourspace("cmyk").toColourspace("cmyk");
  if (colours === "grey") image.toColourspace("b-w");
  if (colourKey) image.removeAlpha();
  return image;
}

/**
 * How small a JPEG may be decoded: at a half, a quarter or an eighth of each side, and yet at twice of what the model sees,
 * where the cosine to the exact samples is above 0.9996.
 *
 * @param {ImageHeader} header
 * @param {number} side
 */
function reductionOf({ width, height }, side) {
  return [8, 4, 2].find((reduction) => Math.min(width, height) >= 2 * side * reduction) ?? 1;
}

/**
 * Grey three times, and without alpha.
 *
 * @param {Uint8Array} pixels
 * @param {number} channels
 */
function rgbOf(pixels, channels) {
  if (channels === 3) return pixels;
  const rgb = new Uint8Array((pixels.length / channels) * 3);
  const step = channels === 4 ? 1 : 0;
  for (let from = 0, to = 0; to < rgb.length; from += channels, to += 3) {
    rgb[to] = pixels[from];
    rgb[to + 1] = pixels[from + step];
    rgb[to + 2] = pixels[from + 2 * step];
  }
  return rgb;
}

/**
 * Pillow's conversion: each colour is what cyan, magenta or yellow and then black leave of white.
 *
 * @param {Uint8Array} pixels
 */
function rgbOfCmyk(pixels) {
  const rgb = new Uint8Array((pixels.length / 4) * 3);
  for (let from = 0, to = 0; to < rgb.length; from += 4, to += 3) {
    const light = 255 - pixels[from + 3];
    for (let channel = 0; channel < 3; channel++) {
      const product = pixels[from + channel] * light + 128;
      rgb[to + channel] = light - (((product >> 8) + product) >> 8);
    }
  }
  return rgb;
}
