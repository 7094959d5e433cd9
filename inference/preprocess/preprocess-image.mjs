// Converts one image file to the pixels of a model. Common JPEG files are decoded by the kernel, everything else by libvips; the kernel
// resizes. Plain JavaScript, so that preprocess-worker.mjs needs no loader.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { ImageKernel } from "./image-kernel.mjs";
import { JpegDecoder } from "./jpeg.mjs";
import { maxScans, scansOf } from "./jpeg-header.mjs";
import { pixelChunks } from "./pixel-chunks.mjs";
import { Resampler, rowsOf } from "./resample.mjs";
import { planOf, roundHalfToEven } from "./resample-plan.mjs";

/** @typedef {import("./image-header.ts").ImageHeader} ImageHeader */
/** @typedef {import("./image-types.ts").PreprocessTask} PreprocessTask */
/** @typedef {import("./image-types.ts").ResizePlan} ResizePlan */
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
 * @param {PreprocessTask} task
 * @param {ThreadResources} resources
 * @returns {Promise<Uint8Array>} `[height, width, 3]` 8-bit RGB, row-major; `task.into` if it was given and could be used
 */
export async function preprocessImage(bytes, task, { resampler, decoder }) {
  const { header, input, reserve } = task;
  const plan = planOf(header, input);
  const scans = header.hasScans ? scansOf(bytes) : 1;
  if (scans > maxScans) {
    throw new Error(`it is stored in ${scans} scans, more than ${maxScans}`);
  }
  if (header.type === "jpeg") {
    const rgb = decodeJpeg(bytes, task, plan, decoder);
    if (rgb !== undefined) return filled(rgb, plan, input);
  }
  const pixels = header.width * header.height;
  await reserve?.(pixels);
  if (reserve && scans * pixels > maxScannedPixels) return await inProcess(bytes, task);
  return filled(await decodeWithLibvips(bytes, task, plan, resampler), plan, input);
}

/**
 * @param {Uint8Array} bytes
 * @param {PreprocessTask} task
 * @param {ResizePlan} plan
 * @param {JpegDecoder} decoder
 * @returns {Uint8Array | undefined} 8-bit RGB of the plan's size; `undefined` if libvips must decode the file
 */
function decodeJpeg(bytes, { header, mode, input, into }, plan, decoder) {
  const reduction = mode === "fast" ? reductionOf(plan, input) : 1;
  const decoded =
    (reduction > 1 && decoder.resample(bytes, planOf(header, input, reduction), into)) ||
    decoder.resample(bytes, plan, into);
  return decoded && rgbOf(decoded.pixels, decoded.channels);
}

/**
 * @param {Uint8Array} bytes
 * @param {PreprocessTask} task
 * @param {ResizePlan} plan
 * @param {Resampler} resampler
 * @returns {Promise<Uint8Array>} 8-bit RGB of the plan's size
 */
async function decodeWithLibvips(bytes, task, plan, resampler) {
  const { header, input, into } = task;
  const { left, top, width, height } = plan.source;
  const isCmyk = header.colours === "cmyk";
  const isConvertedFirst = input.rgbConversion === "before-resize";
  const image = openWithLibvips(bytes, task);
  if (isConvertedFirst && !isCmyk) image.removeAlpha();
  if (header.width * header.height - width * height > minCroppedPixels) {
    image.extract({ left, top, width, height });
  }
  const { data, info } = await decoded(image, header);
  if (isConvertedFirst && isCmyk) {
    const rows = rowsOf({ ...info, data: rgbOfCmyk(data), channels: 3 }, plan, resampler);
    return resampler.resample(rows, plan, false, into);
  }
  const { channels } = info;
  const hasAlpha = !isCmyk && (channels === 2 || channels === 4);
  const result = resampler.resample(
    rowsOf({ data, ...info }, plan, resampler),
    plan,
    hasAlpha,
    into,
  );
  return isCmyk ? rgbOfCmyk(result) : rgbOf(result, channels);
}

/**
 * Returns 8-bit samples. libvips rounds 16-bit grey by one level too much or too little, so its upper bytes are taken here.
 *
 * @param {sharp.Sharp} image
 * @param {ImageHeader} header
 */
async function decoded(image, { colours }) {
  const depth = colours === "grey16" ? "ushort" : "uchar";
  const { data, info } = await image.raw({ depth }).toBuffer({ resolveWithObject: true });
  if (depth === "uchar") return { data, info };
  const samples = new Uint16Array(data.buffer, data.byteOffset, data.length / 2);
  return { data: Uint8Array.from(samples, (sample) => sample >> 8), info };
}

/**
 * Places a resized image in the middle of the model's input, as in Pillow's `ImageOps.pad`.
 *
 * @param {Uint8Array} rgb
 * @param {ResizePlan} plan
 * @param {import("../../contract/model-spec.ts").PixelInput} input
 * @returns {Uint8Array} `rgb` if it has the input's size
 */
function filled(rgb, { size: inner }, { size, resize }) {
  if (resize.mode !== "letterbox" || rgb.length === 3 * size.width * size.height) return rgb;
  const result = new Uint8Array(3 * size.width * size.height);
  for (let at = 0; at < result.length; at++) result[at] = resize.fill[at % 3];
  const left = roundHalfToEven((size.width - inner.width) / 2);
  const top = roundHalfToEven((size.height - inner.height) / 2);
  for (let row = 0; row < inner.height; row++) {
    const line = rgb.subarray(row * inner.width * 3, (row + 1) * inner.width * 3);
    result.set(line, ((top + row) * size.width + left) * 3);
  }
  return result;
}

/**
 * Decodes in a child process, which kills itself at the deadline even if this process has ended.
 *
 * @param {Uint8Array} bytes
 * @param {PreprocessTask} task
 * @returns {Promise<Uint8Array>}
 */
function inProcess(bytes, { header, mode, input, timeoutMs }) {
  const program = fileURLToPath(new URL("./preprocess-process.mjs", import.meta.url));
  const child = spawn(
    process.execPath,
    [program, JSON.stringify({ header, mode, input, timeoutMs })],
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

function openWithLibvips(bytes, { header, timeoutMs }) {
  const { type, width, height, colours, hasColourKey } = header;
  const image = sharp(type === "jpeg" ? bytes : pixelChunks(bytes, type), {
    // a truncated file is an error, warnings are not
    failOn: "error",
    ignoreIcc: true,
    // checked against the header; a file that decodes to more pixels is rejected
    limitInputPixels: width * height,
  });
  image.timeout({ seconds: Math.ceil(timeoutMs / 1_000) });
  if (colours === "cmyk") image.pipelineColourspace("cmyk").toColourspace("cmyk");
  if (colours === "grey") image.toColourspace("b-w");
  if (colours === "grey16") image.toColourspace("grey16");
  if (hasColourKey) image.removeAlpha();
  return image;
}

/**
 * Reduction at which a JPEG may be decoded: 8, 4, 2 or 1. Both decoded sides stay at least twice the resized ones, so that the cosine
 * to the exact result is above 0.9996. Without antialiasing, a reduction would change the result.
 *
 * @param {ResizePlan} plan
 * @param {import("../../contract/model-spec.ts").PixelInput} input
 */
function reductionOf({ scale }, { filter }) {
  if (filter === "tensorflow-bilinear") return 1;
  return [8, 4, 2].find((reduction) => scale >= 2 * reduction) ?? 1;
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
