import type { ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import type { EmbeddedByModality } from "../embed/embed-handler.ts";
import type { Embedded, PipelineOptions } from "../embed/embed-pipeline.ts";
import type { EmbedRoutesOptions } from "../embed/embed-routes.ts";
import { toEmbedError } from "../embed/errors.ts";
import type { EmbeddingsBody, InputItem } from "./embeddings-body.ts";
import type { RemoteImages } from "./remote-images.ts";

export interface OpenAiRoutesOptions extends EmbedRoutesOptions {
  readonly remoteImages: RemoteImages;
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
  request: PipelineOptions,
  options: OpenAiRoutesOptions,
): Promise<EmbeddedByModality> {
  const images: Indexed<ImageItem>[] = [];
  const texts: Indexed<string>[] = [];
  for (const [index, item] of items.entries()) {
    if (item.kind === "text") texts.push({ item: item.text, index });
    else images.push({ item, index });
  }
  const [image, text] = await Promise.all([
    images.length === 0 ? undefined : embedImages(spec, images, request, options),
    texts.length === 0 ? undefined : embedTexts(spec, texts, truncate, request, options),
  ]);
  return { ...(image && { image }), ...(text && { text }) };
}

/** Vectors in the order of the inputs. */
export function inOrder(
  items: readonly InputItem[],
  { image, text }: EmbeddedByModality,
): readonly Float32Array[] {
  const [images, texts] = [image, text].map((embedded) => (embedded?.vectors ?? []).values());
  return items.map(({ kind }) => (kind === "text" ? texts! : images!).next().value!);
}

async function embedTexts(
  { name, towers }: ModelSpec,
  texts: readonly Indexed<string>[],
  truncate: boolean,
  request: PipelineOptions,
  { models, pipeline }: OpenAiRoutesOptions,
): Promise<Embedded> {
  const values = texts.map(({ item }) => item);
  const embedded = await pipeline.texts(models.text(name), values, request).catch((error) => {
    throw withInputIndex(error, texts);
  });
  const context = towers.text!.input.contextLength;
  const full = truncate ? -1 : embedded.tokens.findIndex((count) => count >= context);
  if (full < 0) return embedded;
  const { index } = texts[full]!;
  const message = `input ${index} must have fewer than ${context} token ids if truncate is NONE or false`;
  throw new EmbedError("too_large", message, { image: index, param: "input" });
}

/** Embeds images, after downloading those that are URLs. */
async function embedImages(
  { name }: ModelSpec,
  images: readonly Indexed<ImageItem>[],
  request: PipelineOptions,
  { models, pipeline, remoteImages }: OpenAiRoutesOptions,
): Promise<Embedded> {
  const model = models.image(name);
  const embed = (files: readonly Uint8Array[]) =>
    pipeline.images(model, files, { ...request, file: "transferred" }).catch((error) => {
      throw withInputIndex(error, images);
    });
  // every URL is checked before the first download
  const sources = images.map(({ item, index }) =>
    item.kind === "url" ? checkedUrl(remoteImages, item.url, index) : item.file,
  );
  if (!sources.some((source) => source instanceof URL)) {
    return await embed(sources as readonly Uint8Array[]);
  }
  const startedAt = performance.now();
  const stop = new AbortController();
  const stopped = AbortSignal.any([request.signal, stop.signal]);
  try {
    const files = sources.map((source, at) =>
      source instanceof URL
        ? remoteImages.download(source, stopped, stop).catch((error) => {
            throw errorOfInput(error, images[at]!.index);
          })
        : source,
    );
    const downloaded = await Promise.all(files).finally(() =>
      request.trace?.stage("download", startedAt),
    );
    const download = performance.now() - startedAt;
    const embedded = await embed(downloaded);
    return { ...embedded, times: { ...embedded.times, download } };
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
  return new EmbedError(code, `input ${index} ${message}`, { image: index, cause: error });
}

/** Replaces the index of an image among the images, or of a text among the texts, by its index in the request. */
function withInputIndex(error: unknown, inputs: readonly Indexed<unknown>[]): unknown {
  const { code, message, image, text } = toEmbedError(error);
  const item = image ?? text;
  if (item === undefined) return error;
  const { index } = inputs[item]!;
  const renamed = message.replace(/^(image|text) \d+/, `input ${index}`);
  return new EmbedError(code, renamed, { image: index, cause: error });
}
