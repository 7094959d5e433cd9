import { imagePixels, normalisedImage, type PixelTower } from "../../contract/model-shapes.ts";
import { type ImageInput, type ImageTower, valueRanges } from "../../contract/model-spec.ts";
import { elementCount, type Fp32Tensor, type Uint8Tensor } from "../../contract/tensor.ts";

/**
 * Returns preprocessed images as the FP32 input of an image tower.
 *
 * @param images - `[height, width, 3]` 8-bit RGB each, row-major
 * @returns `[B, 3, height, width]` or `[B, height, width, 3]`, by the layout of the tower
 */
export function imageTensor(
  images: readonly Uint8Array[],
  tower: Pick<ImageTower, "input">,
): Fp32Tensor {
  const { name, dims } = normalisedImage(tower);
  const elements = elementCount(dims);
  const data = new Float32Array(images.length * elements);
  for (const [index, image] of images.entries()) {
    normaliseInto(data.subarray(index * elements, (index + 1) * elements), image, tower.input);
  }
  return { name, dataType: "FP32", shape: [images.length, ...dims], data };
}

/**
 * Returns preprocessed images as the input of a model that includes the normalisation.
 *
 * @param images - `[height, width, 3]` 8-bit RGB each, row-major
 * @returns `[B, height, width, 3]` UINT8
 */
export function pixelTensor(images: readonly Uint8Array[], tower: PixelTower): Uint8Tensor {
  const { name, dims } = imagePixels(tower);
  const bytes = elementCount(dims);
  const data = new Uint8Array(images.length * bytes);
  for (const [index, image] of images.entries()) data.set(image, index * bytes);
  return { name, dataType: "UINT8", shape: [images.length, ...dims], data };
}

/**
 * Normalises one image: (value - mean) / std per channel.
 *
 * @param pixels - `[height, width, 3]` 8-bit RGB, row-major
 * @returns float32 in the layout and channel order of the input
 */
export function normalised(pixels: Uint8Array, input: ImageInput): Float32Array {
  return normaliseInto(new Float32Array(pixels.length), pixels, input);
}

/** Normalised value of each of the 256 levels, per channel in the order of the input. */
type Levels = readonly [Float32Array, Float32Array, Float32Array];

const levelsOfInputs = new WeakMap<ImageInput, Levels>();

function levelsOf(input: ImageInput): Levels {
  let levels = levelsOfInputs.get(input);
  if (levels === undefined) {
    const maximum = valueRanges[input.valueRange];
    const table = (channel: 0 | 1 | 2) =>
      Float32Array.from(
        { length: 256 },
        (_, level) => ((level * maximum) / 255 - input.mean[channel]) / input.std[channel],
      );
    levels = [table(0), table(1), table(2)];
    levelsOfInputs.set(input, levels);
  }
  return levels;
}

/** Converts interleaved 8-bit RGB to normalised values, as {@link normalised}, into an array of the same length. */
export function normaliseInto(
  values: Float32Array,
  pixels: Uint8Array,
  input: ImageInput,
): Float32Array {
  const { width, height } = input.size;
  if (pixels.length !== 3 * width * height) {
    throw new Error(`expected ${3 * width * height} bytes of RGB, got ${pixels.length}`);
  }
  const [first, second, third] = levelsOf(input);
  const red = input.channelOrder === "rgb" ? 0 : 2;
  const blue = 2 - red;
  const [channel, pixel] = input.layout === "nchw" ? [width * height, 1] : [1, 3];
  for (let from = 0, to = 0; from < pixels.length; from += 3, to += pixel) {
    values[to] = first[pixels[from + red]!]!;
    values[to + channel] = second[pixels[from + 1]!]!;
    values[to + 2 * channel] = third[pixels[from + blue]!]!;
  }
  return values;
}
