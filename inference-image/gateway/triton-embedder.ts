import { TritonError } from "../../client/triton/transport.ts";
import { toParts } from "../../client/triton/wire.ts";
import { imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import { unitVector } from "../../inference/session/embeddings.ts";
import { payloadFormatOf, tokenInputOf } from "../../inference/session/payload-format.ts";
import { type TokenRow, tokenRows, tokenTensor } from "../../inference/session/token-tensor.ts";
import type { ImageEmbedder, TextEmbedder } from "../embed/embedder.ts";
import { EmbedError } from "../http/embed-error.ts";
import { imageEncoder } from "./image-encoder.ts";
import { type TritonEmbedderOptions, TritonTower } from "./triton-tower.ts";

/** Embeds images with Tritons: the backend `triton`. */
export function createTritonEmbedder(options: TritonEmbedderOptions): ImageEmbedder {
  const { spec, model } = options;
  const tower = new TritonTower<Uint8Array>({
    ...options,
    output: imageTowerOf(spec).output,
    payloadOf(metadata, createError) {
      const format = payloadFormatOf(spec, model, metadata, createError);
      return {
        tensorSpec: format.tensorSpec,
        single: format.input === "encoded",
        encode: imageEncoder(format, imageTowerOf(spec)),
      };
    },
  });
  return {
    async embed(images, embedOptions) {
      const results = await tower.embed(images, embedOptions);
      return results.map((result, index) => {
        if (result.status === "fulfilled") return unitVector(result.value, index);
        throw rejectionOf(result.reason, index) ?? result.reason;
      });
    },
    announce: () => () => {},
    get input() {
      const { payload } = tower;
      return payload === undefined ? undefined : payload.single ? "encoded" : "pixels";
    },
    get waitingImages() {
      return tower.waitingItems;
    },
    ready: () => tower.ready(),
    get unavailableReason() {
      return tower.unavailableReason;
    },
    close: () => tower.close(),
  };
}

/** Embeds token ids with Tritons, as {@link createTritonEmbedder}. */
export function createTritonTextEmbedder(options: TritonEmbedderOptions): TextEmbedder {
  const { spec, model } = options;
  const text = textTowerOf(spec);
  const tower = new TritonTower<TokenRow>({
    ...options,
    output: text.output,
    payloadOf(metadata, createError) {
      return {
        tensorSpec: tokenInputOf(spec, model, metadata, createError),
        single: false,
        encode: (rows) => ({ tensor: toParts(tokenTensor(text, rows)) }),
      };
    },
  });
  return {
    async embed(encoded, embedOptions) {
      const results = await tower.embed(tokenRows(encoded), embedOptions);
      return results.map((result, index) => {
        if (result.status === "fulfilled") return unitVector(result.value, index, "text");
        throw result.reason;
      });
    },
    get waitingTexts() {
      return tower.waitingItems;
    },
    ready: () => tower.ready(),
    get unavailableReason() {
      return tower.unavailableReason;
    },
    close: () => tower.close(),
  };
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
  return new EmbedError(code, `image ${index} ${reason}`, index, { cause: error });
}
