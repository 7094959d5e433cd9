import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import { ClientError } from "./client-error.ts";
import { requirePackages } from "./optional-packages.ts";

/**
 * Decodes and resizes image files as the embed server does.
 *
 * @returns `[height, width, 3]` 8-bit RGB for each image.
 * @throws {ClientError} `image` if an image cannot be decoded; `settings` if `sharp` is not installed
 */
export async function decodeImages(
  images: readonly Uint8Array[],
  spec: ModelSpec,
): Promise<readonly Uint8Array[]> {
  requirePackages("decoding images in the client", ["sharp"]);
  const { ImageError, preprocess } = await import("../../inference/preprocess/preprocess.ts");
  const { input } = imageTowerOf(spec);
  return await Promise.all(
    images.map((image, i) =>
      preprocess(image, input, { maxPixels: maxImagePixels }).catch((cause: unknown) => {
        if (!(cause instanceof ImageError)) throw cause;
        throw new ClientError("image", `image ${i} ${cause.message}`, { cause, image: i });
      }),
    ),
  );
}
