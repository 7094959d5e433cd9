import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { ImageInput } from "../../contract/model-spec.ts";
import { readFailure } from "../../contract/read-failure.ts";
import { UserError } from "../../contract/user-error.ts";
import { imageContentType, imageNames, normalisedInput, type PreparedImage } from "./reference.ts";

/** Maximum number of images, because each preprocessed image takes 0.6 MB. */
const maxImages = 64;
/** Maximum file size; the preprocessing limits the number of pixels. */
const maxFileBytes = 32 * 1024 * 1024;

/** Reads and preprocesses the images of a folder in name order. */
export async function readImages(
  folder: string,
  input: ImageInput,
): Promise<readonly PreparedImage[]> {
  const images: PreparedImage[] = [];
  for (const name of imageNames(folder, "--images").slice(0, maxImages)) {
    const file = join(folder, name);
    const bytes = readImage(file);
    try {
      const tensor = await normalisedInput(bytes, input);
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
    if (size <= maxFileBytes) return readFileSync(file);
  } catch (error) {
    throw new UserError(`--images: ${file} ${readFailure(error)}`);
  }
  throw new UserError(`--images: ${file} must be at most 32 MiB, got ${size} bytes`);
}
