import { serverEnv } from "../contract/server-env.ts";
import { ImageError, preprocess } from "../inference/preprocess/preprocess.ts";
import { ClientError } from "./client-error.ts";

/**
 * Decodes and resizes image files as the embed server does.
 *
 * @returns `[224, 224, 3]` 8-bit RGB each
 * @throws {ClientError} `image` if one of them cannot be decoded
 */
export async function decodeImages(images: readonly Uint8Array[]): Promise<readonly Uint8Array[]> {
  const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});
  return await Promise.all(
    images.map((image, i) =>
      preprocess(image, { maxPixels }).catch((cause: unknown) => {
        if (!(cause instanceof ImageError)) throw cause;
        throw new ClientError("image", `image ${i} ${cause.message}`, { cause, image: i });
      }),
    ),
  );
}
