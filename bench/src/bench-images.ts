import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "./bench-error.ts";
import { imageTypeOf } from "./reference.ts";

/** An image of a load, in every form that a path carries. */
export interface BenchImage {
  readonly name: string;
  /** The file, as it is sent. */
  readonly bytes: Uint8Array;
  readonly contentType: string;
  /** `[224, 224, 3]` 8-bit RGB: what the payload `u8` carries. */
  readonly pixels: Uint8Array;
  /** `[3, 224, 224]` float32, CLIP-normalised: what the payload `fp32` carries. */
  readonly tensor: Float32Array;
}

/** Makes the forms of an encoded image. Throws a one-line error where it cannot be read. */
export type PrepareImage = (
  image: Uint8Array,
) => Promise<{ readonly pixels: Uint8Array; readonly tensor: Float32Array }>;

/** More would only cost memory: a preprocessed image is 0.6 MB. */
const imageLimit = 64;
/** Before the files are prepared; the image's pixels are limited by the one that prepares it. */
const largestFileBytes = 32 * 1024 * 1024;

/**
 * The images of a folder that a load sends, in the order of their names, and prepared.
 *
 * @throws {BenchError} where there is none, or one cannot be read.
 */
export async function readBenchImages(
  folder: string,
  prepare: PrepareImage,
): Promise<readonly BenchImage[]> {
  let names: string[];
  try {
    names = readdirSync(folder).filter((name) => imageTypeOf(name) !== undefined);
  } catch {
    throw new BenchError(`--images: ${folder} cannot be read`);
  }
  if (names.length === 0) {
    throw new BenchError(`--images: ${folder} has no .jpg, .jpeg, .png or .webp file`);
  }
  const images: BenchImage[] = [];
  for (const name of names.sort().slice(0, imageLimit)) {
    const file = join(folder, name);
    const { size } = statSync(file);
    if (size > largestFileBytes) {
      throw new BenchError(`--images: ${file} must be at most 32 MiB, got ${size} bytes`);
    }
    const bytes = readFileSync(file);
    try {
      images.push({ name, bytes, contentType: imageTypeOf(name) ?? "", ...(await prepare(bytes)) });
    } catch (error) {
      throw new BenchError(`--images: ${file} ${(error as Error).message}`);
    }
  }
  return images;
}
