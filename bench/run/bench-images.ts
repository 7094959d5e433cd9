import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../../contract/user-error.ts";
import { imageContentType, imageNames, type PreparedImage, type Preprocess } from "./reference.ts";

/** More would only cost memory: a preprocessed image is 0.6 MB. */
const imageLimit = 64;
/** Before the files are prepared; the image's pixels are limited by the one that prepares it. */
const largestFileBytes = 32 * 1024 * 1024;

/**
 * The images of a folder that a load sends, in the order of their names, and prepared.
 *
 * @throws {UserError} where there is none, or one cannot be read.
 */
export async function readBenchImages(
  folder: string,
  preprocess: Preprocess,
): Promise<readonly PreparedImage[]> {
  const images: PreparedImage[] = [];
  for (const name of imageNames(folder, "--images").slice(0, imageLimit)) {
    const file = join(folder, name);
    const bytes = readImage(file);
    try {
      const tensor = await preprocess(bytes);
      images.push({ name, bytes, contentType: imageContentType(name) ?? "", tensor });
    } catch (error) {
      throw new UserError(`--images: ${file} ${(error as Error).message}`);
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
    throw new UserError(`--images: ${file} cannot be read`);
  }
  throw new UserError(`--images: ${file} must be at most 32 MiB, got ${size} bytes`);
}
