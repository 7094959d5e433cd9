import { embeddingTensor, imageTowerOf, textTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { maxImagePixels } from "../../contract/preprocess-parameters.ts";
import { imageTensor, pixelTensor } from "../preprocess/image-tensor.ts";
import { preprocess } from "../preprocess/preprocess.ts";
import { embeddingsOf } from "./embeddings.ts";
import type { OpenSessionOptions } from "./onnx-session.ts";
import { tokenRows, tokenTensor } from "./token-tensor.ts";
import { openTowerSession } from "./tower-session.ts";

/** Embeds image files in this process. */
export interface LocalEmbedder {
  /**
   * @param images - Any number of JPEG, PNG or WebP files.
   * @returns One vector of the model's width with unit L2 norm per image, in the same order.
   * @throws {ImageError} if an image cannot be decoded
   * @throws {InferenceError} if the model fails
   */
  embed(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  /** @param images - Preprocessed: `[height, width, 3]` 8-bit RGB each, at most the model's maximum batch size. */
  embedPixels(images: readonly Uint8Array[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

/** Embeds texts in this process. */
export interface LocalTextEmbedder {
  /**
   * @param texts - Any number.
   * @returns One vector of the model's width with unit L2 norm per text, in the same order.
   * @throws {InferenceError} if the model fails
   */
  embed(texts: readonly string[]): Promise<readonly Float32Array[]>;
  close(): Promise<void>;
}

export interface LocalTextEmbedderOptions extends LocalEmbedderOptions {
  /** File of the tokenizer; not read if a package has the vocabulary. */
  readonly vocabulary?: string;
}

/**
 * Opens the text tower of a model.
 *
 * @throws {InferenceError} `model` if the file cannot be loaded or does not fit the spec
 */
export async function openLocalTextEmbedder(
  options: LocalTextEmbedderOptions,
): Promise<LocalTextEmbedder> {
  const { input } = textTowerOf(options.spec);
  const { openTokenizer } = await import("../text/tokenizer.ts");
  const { kind } = input.tokenizer;
  const vocabulary = kind === "clip-bpe" ? undefined : options.vocabulary;
  const tokenizer = await openTokenizer(input, vocabulary);
  const { spec, session } = await openTowerSession({ ...options, modality: "text" });
  const tower = textTowerOf(spec);
  const { maximum } = spec.batching;
  return {
    async embed(texts) {
      const vectors: Float32Array[] = [];
      for (let first = 0; first < texts.length; first += maximum) {
        const encoded = tokenizer.encode(texts.slice(first, first + maximum));
        const { outputs } = await session.run([tokenTensor(tower, tokenRows(encoded))]);
        const output = outputs.find(({ name }) => name === tower.output);
        const rows = { count: encoded.shape[0], width: spec.embedding.width, first };
        vectors.push(...embeddingsOf(output, { ...rows, modality: "text" }));
      }
      return vectors;
    },
    close: () => session.close(),
  };
}

export interface LocalEmbedderOptions {
  readonly spec: ModelSpec;
  /** ONNX file of the tower. */
  readonly modelPath: string;
  /** @default 0 - one per core available to this process */
  readonly intraOpThreads?: number;
  /** @default "cpu" */
  readonly executionProvider?: OpenSessionOptions["executionProvider"];
}

export async function openLocalEmbedder(options: LocalEmbedderOptions): Promise<LocalEmbedder> {
  const { spec, session } = await openTowerSession({ ...options, modality: "image" });
  const tower = imageTowerOf(spec);
  const { maximum } = spec.batching;
  const [input] = session.inputs;
  const toTensor = input?.dataType === "UINT8" ? pixelTensor : imageTensor;

  async function embedPixels(pixels: readonly Uint8Array[]): Promise<readonly Float32Array[]> {
    const { outputs } = await session.run([toTensor(pixels, tower)]);
    const output = outputs.find(({ name }) => name === embeddingTensor(spec, tower).name);
    return embeddingsOf(output, { count: pixels.length, width: spec.embedding.width });
  }

  return {
    async embed(images) {
      const vectors: Float32Array[] = [];
      for (let first = 0; first < images.length; first += maximum) {
        const batch = images.slice(first, first + maximum);
        const pixels = await Promise.all(
          batch.map((image) => preprocess(image, tower.input, { maxPixels: maxImagePixels })),
        );
        vectors.push(...(await embedPixels(pixels)));
      }
      return vectors;
    },
    embedPixels,
    close: () => session.close(),
  };
}
