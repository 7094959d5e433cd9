// Makes of one image file what the model sees: the usual JPEG is decoded here, everything else by libvips; it is resized by
// the kernel. Plain JavaScript, for preprocess-worker.mjs.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { ImageKernel } from "./image-kernel.mjs";
import { JpegDecoder } from "./jpeg.mjs";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf } from "./resample-plan.mjs";

/** @typedef {import("./image-header.ts").ImageHeader} ImageHeader */
/** @typedef {{ resampler: Resampler, decoder: JpegDecoder }} ThreadResources */

// no image comes twice
sharp.cache(false);
// images are decoded side by side, each by one thread
sharp.concurrency(1);

/** To let libvips cut something off costs as much as to copy so many pixels. */
const worthCutting = 100_000;

/**
 * Passes over pixels, in pixels, beyond which a JPEG of several scans is decoded in a process of its own: libjpeg reads all scans
 * before libvips checks for its timeout, and a thread cannot be ended while libvips works. It is about half a second of a core.
 */
const maxScannedPixels = 250_000_000;

/**
 * What one thread works with: it has memory of its own, which grows to what the largest image needed.
 *
 * @param {WebAssembly.Module} module - `compileKernel`'s
 * @returns {ThreadResources}
 */
export function createThreadResources(module) {
  const resampler = new Resampler(new ImageKernel(module));
  return { resampler, decoder: new JpegDecoder(resampler) };
}

/**
 * @param {Uint8Array} bytes
 * @param {import("./image-types.ts").PreprocessTask} task
 * @param {ThreadResources} resources
 * @returns {Promise<Uint8Array>} `[side, side, 3]` 8-bit RGB, row-major: `task.into`, or memory of its own
 */
export async function preprocessImage(bytes, task, { resampler, decoder }) {
  const { header, mode, side, into, reserve } = task;
  const plan = planOf(header, side);
  if (header.type === "jpeg") {
    const reduction = mode === "fast" ? reductionOf(header, side) : 1;
    const decoded =
      (reduction > 1 && decoder.resample(bytes, planOf(header, side, reduction), into)) ||
      decoder.resample(bytes, plan, into);
    if (decoded) return rgbOf(decoded.pixels, decoded.channels);
  }
  const pixels = header.width * header.height;
  await reserve?.(pixels);
  if (reserve && header.scans * pixels > maxScannedPixels) return await inProcess(bytes, task);
  const { left, top, width, height } = plan.source;
  const image = opened(bytes, task);
  if (pixels - width * height > worthCutting) image.extract({ left, top, width, height });
  const { data, info } = await image.raw({ depth: "uchar" }).toBuffer({ resolveWithObject: true });
  const { channels } = info;
  const hasAlpha = header.colours !== "cmyk" && (channels === 2 || channels === 4);
  const rows = rowsOf({ data, ...info }, plan, resampler);
  const result = resampler.resample(rows, plan, hasAlpha, into);
  if (header.colours === "cmyk") return rgbOfCmyk(result);
  return rgbOf(result, channels);
}

/**
 * Decodes in a process, which ends itself at the deadline, whatever happens to this one.
 *
 * @param {Uint8Array} bytes
 * @param {import("./image-types.ts").PreprocessTask} task
 * @returns {Promise<Uint8Array>}
 */
function inProcess(bytes, { header, mode, side, timeoutMs }) {
  const program = fileURLToPath(new URL("./preprocess-process.mjs", import.meta.url));
  const child = spawn(
    process.execPath,
    [program, JSON.stringify({ header, mode, side, timeoutMs })],
    { stdio: "pipe" },
  );
  child.stdin.on("error", () => {}); // it ended before it read the file: its exit is reported
  child.stdin.end(bytes);
  return Promise.all([
    child.stdout.toArray(),
    child.stderr.toArray(),
    new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("exit", resolve);
    }),
  ]).then(([output, errors, code]) => {
    if (code === 0) return new Uint8Array(Buffer.concat(output));
    throw new Error(String(Buffer.concat(errors)).trim() || "the process that decoded it ended");
  });
}

/**
 * @param {Uint8Array} bytes
 * @param {import("./image-types.ts").PreprocessTask} task
 */
function opened(bytes, { header: { width, height, colours, colourKey }, timeoutMs }) {
  const image = sharp(bytes, {
    // warnings do not refuse a photo; a truncated file does
    failOn: "error",
    ignoreIcc: true,
    // known from the header, and checked there: a file that decodes to more lied
    limitInputPixels: width * height,
  });
  image.timeout({ seconds: Math.ceil(timeoutMs / 1_000) });
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
