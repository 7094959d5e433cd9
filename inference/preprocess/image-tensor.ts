import {
  clipNormalisation,
  imageElements,
  imageSide,
  openclipVitB32,
  openclipVitB32U8,
  pixelBytes,
} from "../../contract/model-signature.ts";
import type { Fp32Tensor, Uint8Tensor } from "../../contract/tensor.ts";

/**
 * Returns preprocessed images as the input of `openclip_vit_b32`.
 *
 * @param images - `[224, 224, 3]` 8-bit RGB each, row-major
 * @returns `[B, 3, 224, 224]` FP32
 */
export function imageTensor(images: readonly Uint8Array[]): Fp32Tensor {
  const [input] = openclipVitB32.inputs;
  const data = new Float32Array(images.length * imageElements);
  for (const [index, image] of images.entries()) {
    normaliseInto(data.subarray(index * imageElements, (index + 1) * imageElements), image);
  }
  return { name: input.name, dataType: "FP32", shape: [images.length, ...input.dims], data };
}

/**
 * Returns preprocessed images as the input of `openclip_vit_b32_u8`.
 *
 * @param images - `[224, 224, 3]` 8-bit RGB each, row-major
 * @returns `[B, 224, 224, 3]` UINT8
 */
export function pixelTensor(images: readonly Uint8Array[]): Uint8Tensor {
  const [input] = openclipVitB32U8.inputs;
  const data = new Uint8Array(images.length * pixelBytes);
  for (const [index, image] of images.entries()) data.set(image, index * pixelBytes);
  return { name: input.name, dataType: "UINT8", shape: [images.length, ...input.dims], data };
}

/**
 * Normalises one image for CLIP's image tower.
 *
 * @param pixels - `[224, 224, 3]` 8-bit RGB, row-major
 * @returns `[3, 224, 224]` float32, row-major: (RGB in 0..1 - mean) / standard deviation, per channel
 */
export function normalised(pixels: Uint8Array): Float32Array {
  return normaliseInto(new Float32Array(imageElements), pixels);
}

/** Normalised value of each of the 256 levels, per channel. */
const levels = clipNormalisation.mean.map((mean, channel) =>
  Float32Array.from(
    { length: 256 },
    (_, level) => (level / 255 - mean) / clipNormalisation.std[channel]!,
  ),
);

/** Converts interleaved 8-bit RGB to normalised planes. */
function normaliseInto(values: Float32Array, pixels: Uint8Array): Float32Array {
  if (pixels.length !== pixelBytes) {
    throw new Error(`expected ${pixelBytes} bytes of RGB, got ${pixels.length}`);
  }
  const plane = imageSide * imageSide;
  const [red, green, blue] = levels as [Float32Array, Float32Array, Float32Array];
  for (let pixel = 0, from = 0; pixel < plane; pixel++, from += 3) {
    values[pixel] = red[pixels[from]!]!;
    values[plane + pixel] = green[pixels[from + 1]!]!;
    values[2 * plane + pixel] = blue[pixels[from + 2]!]!;
  }
  return values;
}
