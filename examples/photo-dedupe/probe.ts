import sharp from "sharp";

/**
 * A model is known by what it makes of one picture: that holds for a local file, an embed server and a Triton, whatever
 * they are called, and shows when a service was started anew with other weights.
 */

const side = 224;

let picture: Promise<Uint8Array> | undefined;

/** The probe, a PNG file: the same pixels everywhere, so that it is not resized nor decoded in several ways. */
export function probePicture(): Promise<Uint8Array> {
  picture ??= paint();
  return picture;
}

async function paint(): Promise<Uint8Array> {
  const pixels = Buffer.alloc(side * side * 3);
  for (let y = 0; y < side; y++) {
    for (let x = 0; x < side; x++) {
      const disc = (x - 150) ** 2 + (y - 90) ** 2 < 3_600 ? 90 : 0;
      const board = ((x >> 4) + (y >> 5)) % 2 === 0 ? 40 : 0;
      const at = (y * side + x) * 3;
      pixels[at] = Math.min(255, x + disc);
      pixels[at + 1] = Math.min(255, y + board);
      pixels[at + 2] = ((x * y) >> 8) ^ board;
    }
  }
  return sharp(pixels, { raw: { width: side, height: side, channels: 3 } })
    .png()
    .toBuffer();
}

/** Two answers to the probe are of the same model from here: number formats differ less, other weights differ more. */
export const sameModelCosine = 0.99;

/** Dot product: the cosine of two unit vectors. */
export function cosine(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** First values of the probe's embedding by the models with random weights that `clipstack model generate` writes. */
const randomModels: readonly { readonly name: string; readonly values: readonly number[] }[] = [
  {
    name: "vit-b-32",
    values: [
      -0.0291, 0.0139, -0.0186, -0.0386, 0.0119, -0.0083, 0.0591, -0.0194, -0.0361, -0.0504,
      -0.0127, 0.0102, 0.0543, -0.0211, -0.0341, 0.0613,
    ],
  },
  {
    name: "tiny",
    values: [
      -0.026, 0.062, -0.0367, -0.0565, 0.0461, -0.0269, 0.0014, -0.031, -0.0101, 0.024, 0.0393,
      0.0123, -0.0138, -0.1037, 0.0317, -0.0618,
    ],
  },
];

/** What is known of a model's weights by its answer to the probe. */
export function weightsOf(probe: Float32Array): "random" | "unknown" {
  const random = randomModels.some(({ values }) =>
    values.every((value, i) => Math.abs(value - probe[i]!) < 0.01),
  );
  return random ? "random" : "unknown";
}
