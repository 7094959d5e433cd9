// Converts one image file to model input. Common JPEG files are decoded by the kernel, everything else by libvips; the kernel
// resizes. Plain JavaScript, so that preprocess-worker.mjs needs no loader.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { ImageKernel } from "./image-kernel.mjs";
import { JpegDecoder } from "./jpeg.mjs";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf } from "./resample-plan.mjs";

/** @typedef {import("./image-header.ts").ImageHeader} ImageHeader */
/** @typedef {{ resampler: Resampler, decoder: JpegDecoder }} ThreadResources */

// images are not repeated
sharp.cache(false);
// concurrency comes from the pool's threads
sharp.concurrency(1);

/** Minimum number of pixels removed for a crop in libvips to pay off: it costs as much as copying this many. */
const minCroppedPixels = 100_000;

/**
 * Maximum scans × pixels of a JPEG decoded in a thread, about half a second. A larger one is decoded in a child process, because
 * libjpeg reads all scans before libvips checks its timeout, and a thread cannot be terminated inside libvips.
 */
const maxScannedPixels = 250_000_000;

/**
 * Kernel, resampler and decoder of one thread, with their own memory, which grows to the needs of the largest image.
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
 * @returns {Promise<Uint8Array>} `[side, side, 3]` 8-bit RGB, row-major; `task.into` if it was given
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
  const image = openWithLibvips(bytes, task);
  if (pixels - width * height > minCroppedPixels) image.extract({ left, top, width, height });
  const { data, info } = await image.raw({ depth: "uchar" }).toBuffer({ resolveWithObject: true });
  const { channels } = info;
  const hasAlpha = header.colours !== "cmyk" && (channels === 2 || channels === 4);
  const rows = rowsOf({ data, ...info }, plan, resampler);
  const result = resampler.resample(rows, plan, hasAlpha, into);
  if (header.colours === "cmyk") return rgbOfCmyk(result);
  return rgbOf(result, channels);
}

/**
 * Decodes in a child process, which kills itself at the deadline even if this process has ended.
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
  child.stdin.on("error", () => {}); // it ended before reading the file; its exit code is reported below
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
    throw new Error(String(Buffer.concat(errors)).trim() || "the decoding process ended");
  });
}

function openWithLibvips(bytes, { header: { width, height, colours, hasColourKey }, timeoutMs }) {
  const image = sharp(bytes, {
    // a truncated file is an error, warnings are not
    failOn: "error",
    ignoreIcc: true,
    // checked against the header; a file that decodes to more pixels is rejected
    limitInputPixels: width * height,
  });
  image.timeout({ seconds: Math.ceil(timeoutMs / 1_000) });
  if (colours === "cmyk") image.pipelineColourspace("cmyk").toColourspace("cmyk");
  if (colours === "grey") image.toColourspace("b-w");
  if (hasColourKey) image.removeAlpha();
  return image;
}

/**
 * Reduction at which a JPEG may be decoded: 8, 4, 2 or 1. The shortest decoded side stays at least twice the model's, so that the
 * cosine to the exact result is above 0.9996.
 *
 * @param {ImageHeader} header
 * @param {number} side
 */
function reductionOf({ width, height }, side) {
  return [8, 4, 2].find((reduction) => Math.min(width, height) >= 2 * side * reduction) ?? 1;
}

/**
 * Converts 1 to 4 channels to RGB: repeats grey and drops alpha.
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
 * Converts inverted CMYK to RGB like Pillow.
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
