import { TritonError } from "../../client/triton/transport.ts";
import { toParts } from "../../client/triton/wire.ts";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { isForDali } from "../../inference/preprocess/dali-files.ts";
import { unitVector } from "../../inference/session/embeddings.ts";
import { payloadFormatOf, tokenInputOf } from "../../inference/session/payload-format.ts";
import { type TokenRow, tokenRows, tokenTensor } from "../../inference/session/token-tensor.ts";
import type { EncodedTexts } from "../../inference/text/tokenizer.ts";
import type { EmbedOptions, ImageEmbedder, TextEmbedder } from "../models/embedder.ts";
import { imageEncoder } from "./image-encoder.ts";
import { type TritonEmbedderOptions, TritonTower } from "./triton-tower.ts";

/** Embeds images with Triton servers: the backend `triton`. */
export class TritonImageEmbedder extends TritonTower<Uint8Array> implements ImageEmbedder {
  constructor(options: TritonEmbedderOptions) {
    const { spec, model } = options;
    const tower = imageTowerOf(spec);
    super({
      ...options,
      output: tower.output,
      payloadOf(metadata, createError) {
        const format = payloadFormatOf(spec, model, metadata, createError);
        return {
          tensorSpec: format.tensorSpec,
          single: format.input !== "pixels",
          encode: imageEncoder(format, tower),
        };
      },
    });
  }

  get input(): ImageEmbedder["input"] {
    const { payload } = this;
    return payload === undefined ? undefined : payload.single ? "encoded" : "pixels";
  }

  async embed(
    images: readonly Uint8Array[],
    options?: EmbedOptions,
  ): Promise<readonly Float32Array[]> {
    return vectorsOf(await this.settle(images, options));
  }

  announce(): () => void {
    return () => {};
  }
}

function vectorsOf(
  results: readonly PromiseSettledResult<Float32Array>[],
): readonly Float32Array[] {
  return results.map((result, index) => {
    if (result.status === "fulfilled") return unitVector(result.value, index);
    throw rejectionOf(result.reason, index) ?? result.reason;
  });
}

/**
 * Embeds images with Triton servers that decode JPEG files with DALI. Files that DALI does not decode with the same pixels are preprocessed
 * here and sent to `pixels`, the model that follows DALI's in the ensemble.
 *
 * @param dali - The ensemble.
 */
export function createDaliEmbedder(
  dali: TritonEmbedderOptions,
  pixels: TritonEmbedderOptions,
  maxPixels: number,
): ImageEmbedder {
  const [files, decoded] = [new TritonImageEmbedder(dali), new TritonImageEmbedder(pixels)];
  return {
    async embed(images, { areFiles = [], ...embedOptions } = {}) {
      const isFile = (index: number) => areFiles[index] === true;
      const part = async (tower: TritonImageEmbedder, select: boolean) => {
        const indices = [...images.keys()].filter((index) => isFile(index) === select);
        if (indices.length === 0) return [];
        const items = indices.map((index) => images[index]!);
        const results = await tower.settle(items, embedOptions);
        return indices.map((index, at) => [index, results[at]!] as const);
      };
      const parts = await Promise.all([part(files, true), part(decoded, false)]);
      const ordered = parts.flat().sort(([a], [b]) => a - b);
      return vectorsOf(ordered.map(([, result]) => result));
    },
    takesFile: (file) => isForDali(file, maxPixels),
    announce: () => () => {},
    get waitingItems() {
      return files.waitingItems + decoded.waitingItems;
    },
    get fingerprint() {
      return files.fingerprint === decoded.fingerprint ? files.fingerprint : undefined;
    },
    ready: async () => (await files.ready()) && (await decoded.ready()),
    get unavailableReason() {
      return files.unavailableReason ?? decoded.unavailableReason;
    },
    async close() {
      await Promise.all([files.close(), decoded.close()]);
    },
  };
}

/** Embeds token ids with Triton servers, as {@link TritonImageEmbedder}. */
export class TritonTextEmbedder extends TritonTower<TokenRow> implements TextEmbedder {
  constructor(options: TritonEmbedderOptions) {
    const { spec, model } = options;
    const tower = textTowerOf(spec);
    super({
      ...options,
      output: tower.output,
      payloadOf: (metadata, createError) => ({
        tensorSpec: tokenInputOf(spec, model, metadata, createError),
        single: false,
        encode: (rows) => ({ tensor: toParts(tokenTensor(tower, rows)) }),
      }),
    });
  }

  async embed(encoded: EncodedTexts, options?: EmbedOptions): Promise<readonly Float32Array[]> {
    const results = await this.settle(tokenRows(encoded), options);
    return results.map((result, index) => {
      if (result.status === "fulfilled") return unitVector(result.value, index, "text");
      throw result.reason;
    });
  }
}

/** Returns the error for an image that the model rejected, with its index in the request. */
function rejectionOf(error: unknown, index: number): EmbedError | undefined {
  if (!(error instanceof TritonError) || error.code !== "rejected") return undefined;
  const [, reason] = /\bimage 0 (.+?)(?: \(gRPC .*\)| \(HTTP .*\))?$/s.exec(error.message) ?? [];
  if (reason === undefined) return undefined;
  const code = reason.startsWith("is not a")
    ? "unsupported_media_type"
    : / pixels, more than /.test(reason)
      ? "too_large"
      : "undecodable_image";
  return new EmbedError(code, `image ${index} ${reason}`, { image: index, cause: error });
}
