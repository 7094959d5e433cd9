import sharp from "sharp";
import { DedupeError } from "./dedupe-error.ts";
import { type PhotoDatabase, readSetting, writeSetting } from "./photo-database.ts";

/** `random`: weights of `clipstack model generate`, whose embeddings are unrelated to the content. */
export type Weights = "random" | "unknown";

/** Model of the index's embeddings, identified by its embedding of a probe picture. */
interface IndexModel {
  readonly probe: readonly number[];
  readonly weights: Weights;
}

const side = 224;

/** Returns the probe picture: a PNG file that has the model's input size and is not resized. */
export async function probePicture(): Promise<Uint8Array> {
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

/** Minimum cosine of two embeddings of the probe by the same model. Precisions differ by less, other weights by more. */
const sameModelCosine = 0.99;

/** Dot product: the cosine of two unit vectors. */
export function cosine(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/**
 * Records the service's model. With `replace`, embeddings of another model are removed.
 *
 * @param location - Location of the model, for the error message.
 * @throws {DedupeError} if the index has embeddings by another model and `replace` is false
 */
export function useModel(
  database: PhotoDatabase,
  probe: Float32Array,
  { location, replace }: { readonly location: string; readonly replace: boolean },
): Weights {
  const known = readSetting<IndexModel>(database, "model");
  if (known !== undefined && cosine(known.probe, probe) >= sameModelCosine) return known.weights;
  const embedded = database.get("SELECT 1 FROM embeddings LIMIT 1") !== undefined;
  if (embedded && !replace) {
    throw new DedupeError(
      "failed",
      `'${database.file}' has embeddings by another model than that of ${location}: use that one, or embed all again with --replace`,
    );
  }
  const model: IndexModel = { probe: [...probe], weights: weightsOf(probe) };
  database.transaction(() => {
    database.run("DELETE FROM embeddings");
    writeSetting(database, "model", model);
  });
  return model.weights;
}

export function weightsInUse(database: PhotoDatabase): Weights {
  return readSetting<IndexModel>(database, "model")?.weights ?? "unknown";
}

/** First values of the probe's embedding by the random models of `clipstack model generate`: vit-b-32 and tiny. */
const randomModels: readonly (readonly number[])[] = [
  [-0.0291, 0.0139, -0.0186, -0.0386, 0.0119, -0.0083, 0.0591, -0.0194, -0.0361, -0.0504],
  [-0.026, 0.062, -0.0367, -0.0565, 0.0461, -0.0269, 0.0014, -0.031, -0.0101, 0.024],
];

function weightsOf(probe: Float32Array): Weights {
  const random = randomModels.some((values) =>
    values.every((value, i) => Math.abs(value - probe[i]!) < 0.01),
  );
  return random ? "random" : "unknown";
}

/** Printed with every result of random weights. */
export const randomWeightsText =
  "the model has random weights: the groups are for testing and do not reflect the content of the photos";
