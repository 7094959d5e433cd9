import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { BenchError } from "./bench-error.ts";
import { imageTypeOf, type Preprocess } from "./reference.ts";

/** An image of a load, in the forms that paths are made of. */
export interface BenchImage {
  readonly name: string;
  /** The file, as it is sent. */
  readonly bytes: Uint8Array;
  readonly contentType: string;
  /** `[3, 224, 224]` float32, CLIP-normalised. */
  readonly tensor: Float32Array;
}

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
  preprocess: Preprocess,
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
    const bytes = readImage(file);
    try {
      const tensor = await preprocess(bytes);
      images.push({ name, bytes, contentType: imageTypeOf(name) ?? "", tensor });
    } catch (error) {
      throw new BenchError(`--images: ${file} ${(error as Error).message}`);
    }
  }
  return images;
}

function readImage(file: string): Buffer {
  let size: number;
  try {
    size = statSync(file).size;
    if (size <= largestFileBytes) return readFileSync(file);
  } catch {
    throw new BenchError(`--images: ${file} cannot be read`);
  }
  throw new BenchError(`--images: ${file} must be at most 32 MiB, got ${size} bytes`);
}
