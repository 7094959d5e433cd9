import { readdir, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

/** The sample images of this checkout. */
const folder = fileURLToPath(new URL("../../../bench/samples/", import.meta.url));

export interface TrialImage {
  readonly name: string;
  readonly contentType: string;
  readonly bytes: Buffer;
}

/**
 * Real images in every format that the server reads, the smallest first.
 *
 * @param maxBytes - Of one file.
 */
export async function trialImages(maxBytes = Number.POSITIVE_INFINITY): Promise<TrialImage[]> {
  const names = (await readdir(folder)).filter((name) => /\.(jpg|png|webp)$/.test(name));
  const images = await Promise.all(
    names.sort().map(async (name) => ({
      name,
      contentType: `image/${name.endsWith(".jpg") ? "jpeg" : name.split(".").at(-1)}`,
      bytes: await readFile(`${folder}${name}`),
    })),
  );
  return images
    .filter(({ bytes }) => bytes.length <= maxBytes)
    .sort((a, b) => a.bytes.length - b.bytes.length);
}
