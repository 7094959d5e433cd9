import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import type { StageTimes } from "../embed/embed-pipeline.ts";
import type { EmbedRoutesOptions } from "../embed/embed-routes.ts";
import type { Fingerprints } from "../embed/response-identity.ts";
import { noTimes } from "../embed/server-timing.ts";
import { toEmbedError } from "../http/errors.ts";
import type { EmbeddingsBody, InputItem } from "./embeddings-body.ts";
import type { RemoteImages } from "./remote-images.ts";

export interface OpenAiRoutesOptions extends EmbedRoutesOptions {
  readonly remoteImages: RemoteImages;
}

export interface EmbeddedInputs {
  /** In the order of the inputs. */
  readonly vectors: readonly Float32Array[];
  /** Token ids of all texts, without padding. */
  readonly tokens: number;
  /** Modality that took longer. */
  readonly modality: Modality;
  /** Stages of that modality. */
  readonly times: StageTimes;
  /** Of the modalities of the request. */
  readonly fingerprints: Fingerprints;
}

/** Inputs of one modality after their embedding. */
interface EmbeddedPart {
  readonly vectors: readonly Float32Array[];
  readonly tokens: number;
  readonly times: StageTimes;
}

type ImageItem = Exclude<InputItem, { readonly kind: "text" }>;

/** Input with its index in the request. */
interface Indexed<Item> {
  readonly item: Item;
  readonly index: number;
}

/**
 * Embeds the images and texts of a request concurrently.
 *
 * @throws {EmbedError} for the first invalid input, by index
 */
export async function embedInputs(
  spec: ModelSpec,
  { items, truncate }: Pick<EmbeddingsBody, "items" | "truncate">,
  signal: AbortSignal,
  options: OpenAiRoutesOptions,
): Promise<EmbeddedInputs> {
  const images: Indexed<ImageItem>[] = [];
  const texts: Indexed<string>[] = [];
  for (const [index, item] of items.entries()) {
    if (item.kind === "text") texts.push({ item: item.text, index });
    else images.push({ item, index });
  }
  const [ofImages, ofTexts] = await Promise.all([
    images.length === 0 ? nothing : embedImages(spec, images, signal, options),
    texts.length === 0 ? nothing : embedTexts(spec, texts, truncate, signal, options),
  ]);
  const vectors = new Array<Float32Array>(items.length);
  for (const [at, { index }] of images.entries()) vectors[index] = ofImages.vectors[at]!;
  for (const [at, { index }] of texts.entries()) vectors[index] = ofTexts.vectors[at]!;
  const modality = durationOf(ofTexts) > durationOf(ofImages) ? "text" : "image";
  const { times } = modality === "text" ? ofTexts : ofImages;
  const { models } = options;
  const fingerprints = {
    image: images.length === 0 ? undefined : models.image(spec.name).embedder.fingerprint,
    text: texts.length === 0 ? undefined : models.text(spec.name).embedder.fingerprint,
  };
  return { vectors, tokens: ofTexts.tokens, modality, times, fingerprints };
}

const nothing: EmbeddedPart = { vectors: [], tokens: 0, times: noTimes() };

function durationOf({ times }: EmbeddedPart): number {
  return Object.values(times).reduce((sum: number, duration: number) => sum + duration, 0);
}

async function embedTexts(
  { name, towers }: ModelSpec,
  texts: readonly Indexed<string>[],
  truncate: boolean,
  signal: AbortSignal,
  { models, pipeline, metrics }: OpenAiRoutesOptions,
): Promise<EmbeddedPart> {
  const times = noTimes();
  const values = texts.map(({ item }) => item);
  const { vectors, tokens } = await pipeline
    .texts(models.text(name), values, { signal }, times)
    .catch((error) => {
      throw withInputIndex(error, texts);
    });
  metrics.tower(name, "text").embedded(texts.length);
  const context = towers.text!.input.contextLength;
  const full = truncate ? -1 : tokens.findIndex((count) => count >= context);
  if (full >= 0) {
    const { index } = texts[full]!;
    const message = `input ${index} must have fewer than ${context} token ids if truncate is NONE or false`;
    throw new EmbedError("too_large", message, index, { param: "input" });
  }
  return { vectors, tokens: tokens.reduce((sum, count) => sum + count, 0), times };
}

async function embedImages(
  { name }: ModelSpec,
  images: readonly Indexed<ImageItem>[],
  signal: AbortSignal,
  options: OpenAiRoutesOptions,
): Promise<EmbeddedPart> {
  const { models, pipeline, metrics } = options;
  const model = models.image(name);
  const times = noTimes();
  const vectors = await withFiles(images, signal, options, times, (files) =>
    pipeline.images(model, files, { signal, file: "transferred" }, times).catch((error) => {
      throw withInputIndex(error, images);
    }),
  );
  metrics.tower(name, "image").embedded(vectors.length);
  return { vectors, tokens: 0, times };
}

/**
 * Runs `work` with the image files, after downloading those that are URLs.
 *
 * @param times - Receives the duration of the downloads.
 */
async function withFiles<Result>(
  images: readonly Indexed<ImageItem>[],
  signal: AbortSignal,
  { remoteImages }: OpenAiRoutesOptions,
  times: StageTimes,
  work: (files: readonly Uint8Array[]) => Promise<Result>,
): Promise<Result> {
  // every URL is checked before the first download
  const sources = images.map(({ item, index }) =>
    item.kind === "url" ? checkedUrl(remoteImages, item.url, index) : item.file,
  );
  const urls = sources.filter((source) => source instanceof URL).length;
  if (urls === 0) return await work(sources as readonly Uint8Array[]);
  const startedAt = performance.now();
  const stop = new AbortController();
  const stopped = AbortSignal.any([signal, stop.signal]);
  try {
    const files = sources.map((source, at) =>
      source instanceof URL
        ? remoteImages.download(source, stopped, stop).catch((error) => {
            throw errorOfInput(error, images[at]!.index);
          })
        : source,
    );
    const downloaded = await Promise.all(files);
    times.download = performance.now() - startedAt;
    return await work(downloaded);
  } finally {
    stop.abort();
    remoteImages.release(stop);
  }
}

function checkedUrl(remoteImages: RemoteImages, url: string, index: number): URL {
  try {
    return remoteImages.check(url);
  } catch (error) {
    throw errorOfInput(error, index);
  }
}

/** Error about an input; any error that is not about the request is returned as it is. */
function errorOfInput(error: unknown, index: number): unknown {
  if (!(error instanceof EmbedError)) return error;
  const { code, message } = error;
  return new EmbedError(code, `input ${index} ${message}`, index, { cause: error });
}

/** Replaces the index of an image among the images, or of a text among the texts, by its index in the request. */
function withInputIndex(error: unknown, inputs: readonly Indexed<unknown>[]): unknown {
  const { code, message, image, text } = toEmbedError(error);
  const item = image ?? text;
  if (item === undefined) return error;
  const { index } = inputs[item]!;
  const renamed = message.replace(/^(image|text) \d+/, `input ${index}`);
  return new EmbedError(code, renamed, index, { cause: error });
}
