import { openclipVitB32 } from "../../contract/model-signature.ts";
import { serverEnv } from "../../contract/server-env.ts";
import { imageTensor } from "../preprocess/image-tensor.ts";
import { preprocess } from "../preprocess/preprocess.ts";
import { embeddingsOf } from "./embeddings.ts";
import { openSession } from "./onnx-session.ts";

/** Embeds image files in this process. */
export interface LocalEmbedder {
  /**
   * @param images - Any number of JPEG, PNG or WebP files.
   * @returns One vector of 512 float32 with unit L2 norm per image, in the same order.
   * @throws {ImageError} if an image cannot be decoded
   * @throws {InferenceError} if the model fails
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /** @param images - Preprocessed: `[224, 224, 3]` 8-bit RGB each, at most `openclipVitB32.maxBatchSize`. */
  embedPixels(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

export interface LocalEmbedderOptions {
  readonly modelPath: string;
  /** @default 0 - one per core available to this process */
  readonly intraOpThreads?: number;
}

export async function openLocalEmbedder(options: LocalEmbedderOptions): Promise<LocalEmbedder> {
  const { modelPath, intraOpThreads } = options;
  const { MAX_IMAGE_PIXELS: maxPixels } = serverEnv.parse({});
  const session = await openSession({ modelPath, intraOpThreads });

  async function embedPixels(pixels: readonly Uint8Array[]): Promise<readonly Float32Array[]> {
    const { outputs } = await session.run([imageTensor(pixels)]);
    return embeddingsOf(outputs[0], pixels.length);
  }

  return {
    async embed(images) {
      const vectors: Float32Array[] = [];
      for (let first = 0; first < images.length; first += openclipVitB32.maxBatchSize) {
        const batch = images.slice(first, first + openclipVitB32.maxBatchSize);
        const pixels = await Promise.all(batch.map((image) => preprocess(image, { maxPixels })));
        vectors.push(...(await embedPixels(pixels)));
      }
      return vectors;
    },
    embedPixels,
    close: () => session.close(),
  };
}
