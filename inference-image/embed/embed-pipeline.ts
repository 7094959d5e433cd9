import { imageTowerOf } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import type { RequestTrace } from "../../http/request-trace.ts";
import {
  imageTypeOf,
  type Preprocessor,
  type RunOptions,
} from "../../inference/preprocess/preprocess.ts";
import { InvalidEmbeddingError } from "../../inference/session/embeddings.ts";
import { mapConcurrently } from "../../inference/threads/map-concurrently.ts";
import type { EmbedTiming } from "../models/embedder.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import type { ImageModel, ServedModels, TextModel } from "../models/served-models.ts";
import { toEmbedError } from "./errors.ts";

export interface EmbedPipelineOptions {
  readonly models: ServedModels;
  readonly preprocessor: Preprocessor;
  readonly metrics: EmbedMetrics;
}

export interface PipelineOptions {
  readonly signal: AbortSignal;
  /** Receives the stages. @default - the request is not traced */
  readonly trace?: RequestTrace | undefined;
}

export type ImagePipelineOptions = PipelineOptions & Required<RunOptions>;

/** Durations of the stages of a request, in milliseconds. */
export interface StageTimes {
  /** Also of the tokenizer. */
  readonly decode: number;
  readonly queue: number;
  readonly infer: number;
  /** Time until the images of all URLs have arrived; absent without URLs. */
  readonly download?: number;
}

/** Embedded images or texts of one request. */
export interface Embedded {
  /** One vector per image or text, in order. */
  readonly vectors: readonly Float32Array[];
  /** Token ids of each text before padding, begin and end included; none for images. */
  readonly tokens: readonly number[];
  readonly times: StageTimes;
  /** Fingerprint of the embeddings, if known. */
  readonly fingerprint: string | undefined;
}

/** Parts of one request that are embedded concurrently. */
const concurrentParts = 2;

/** Maximum number of texts of one request in the queue of its model: two full batches. */
export function textsInQueue({ batching }: ModelSpec): number {
  return concurrentParts * batching.maximum;
}

/** Decodes image files or tokenizes texts, and embeds the result. */
export class EmbedPipeline {
  readonly #options: EmbedPipelineOptions;
  #decoding = 0;
  /** Number of requests so far. */
  #arrivals = 0;

  constructor(options: EmbedPipelineOptions) {
    this.#options = options;
  }

  /** Number of images and texts that are being decoded or wait for a model. */
  get queuedItems(): number {
    return this.#decoding + this.#options.models.waitingItems;
  }

  /**
   * Embeds image files.
   *
   * @throws {EmbedError} for the first invalid image, or the reason of the signal
   */
  async images(
    model: ImageModel,
    images: readonly Uint8Array[],
    options: ImagePipelineOptions,
  ): Promise<Embedded> {
    const { preprocessor, metrics } = this.#options;
    const input = model.embedder.input ?? "pixels";
    const compute = async () => {
      const { inputs, decode, stages, ...submitted } = await this.#submit(
        images,
        model,
        input,
        options,
      );
      const vectors = await submitted.vectors;
      if (input === "pixels") {
        for (const [index, pixels] of inputs.entries()) {
          if (pixels !== images[index]) preprocessor.recycle(pixels);
        }
      }
      const { queue, infer } = stages;
      return { vectors, times: { decode, queue, infer } };
    };
    const { vectors, times } = await unlessAborted(compute(), options.signal);
    metrics.tower(model.spec.name, "image").embedded(vectors.length);
    return { vectors, tokens: [], times, fingerprint: model.embedder.fingerprint };
  }

  /**
   * Tokenizes and embeds texts. A request of many texts has only a part of them in the queue, so that others are not delayed.
   *
   * @throws {EmbedError} the reason of the signal
   */
  async texts(
    { tokenizer, embedder, spec }: TextModel,
    texts: readonly string[],
    { signal, trace }: PipelineOptions,
  ): Promise<Embedded> {
    const size = spec.batching.maximum;
    const parts = Array.from({ length: Math.ceil(texts.length / size) }, (_, part) => part * size);
    const tokens: number[] = [];
    const stages = new LongestStages();
    let decode = 0;
    const embedPart = async (first: number): Promise<readonly Float32Array[]> => {
      signal.throwIfAborted();
      const startedAt = performance.now();
      const encoded = await tokenizer.encode(texts.slice(first, first + size), signal);
      decode += performance.now() - startedAt;
      trace?.stage("tokenize", startedAt);
      for (const [index, count] of encoded.tokens.entries()) tokens[first + index] = count;
      const { onTiming } = stages;
      return await embedder.embed(encoded, { signal, onTiming, trace }).catch((error: unknown) => {
        throw withTextOffset(error, first);
      });
    };
    const startedAt = performance.now();
    const vectors = await unlessAborted(mapConcurrently(parts, concurrentParts, embedPart), signal);
    this.#options.metrics.tower(spec.name, "text").embedded(texts.length);
    const { queue, infer } = stages;
    // the parts of a request wait for each other
    const waited = Math.max(0, performance.now() - startedAt - decode - queue);
    const times = { decode, queue, infer: parts.length > 1 ? waited : infer };
    return { vectors: vectors.flat(), tokens, times, fingerprint: embedder.fingerprint };
  }

  /** Returns the position of a request in the queue of its model, by its arrival. */
  #nextOrder(): number {
    this.#arrivals += 1;
    return this.#arrivals;
  }

  /** Decodes the images and queues them for the model. They are announced to the batcher while they are decoded. */
  async #submit(
    images: readonly Uint8Array[],
    model: ImageModel,
    input: "pixels" | "encoded",
    options: ImagePipelineOptions,
  ) {
    const { embedder } = model;
    const order = this.#nextOrder();
    const settleAnnouncement = embedder.announce();
    try {
      const startedAt = performance.now();
      const inputs = await this.#decodeAll(images, model, input, options);
      const decode = performance.now() - startedAt;
      const stages = new LongestStages();
      const vectors = embedder.embed(inputs, {
        ...(embedder.takesFile !== undefined && {
          areFiles: inputs.map((decoded, index) => decoded === images[index]),
        }),
        signal: options.signal,
        trace: options.trace,
        onTiming: stages.onTiming,
        order,
      });
      return { inputs, decode, stages, vectors };
    } finally {
      settleAnnouncement();
    }
  }

  /** @throws {EmbedError} for the first invalid image, by index */
  async #decodeAll(
    images: readonly Uint8Array[],
    model: ImageModel,
    input: "pixels" | "encoded",
    options: ImagePipelineOptions,
  ): Promise<readonly Uint8Array[]> {
    this.#decoding += images.length;
    const startedAt = performance.now();
    const results = await Promise.allSettled(
      images.map((image) => this.#decode(image, model, input, options)),
    );
    options.trace?.stage("decode", startedAt);
    options.signal.throwIfAborted();
    return results.map((result, index) => {
      if (result.status === "fulfilled") return result.value;
      const { code, message } = toEmbedError(result.reason);
      throw new EmbedError(code, `image ${index} ${message}`, {
        image: index,
        cause: result.reason,
      });
    });
  }

  async #decode(
    image: Uint8Array,
    model: ImageModel,
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<Uint8Array> {
    const startedAt = performance.now();
    try {
      if (image.length === 0) throw new EmbedError("unsupported_media_type", "is empty");
      if (model.embedder.takesFile?.(image)) return image;
      if (input === "pixels")
        return await this.#options.preprocessor.run(image, imageTowerOf(model.spec).input, options);
      if (imageTypeOf(image) !== undefined) return image;
      throw new EmbedError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
    } finally {
      this.#decoding -= 1;
      this.#options.metrics
        .tower(model.spec.name, "image")
        .decoded((performance.now() - startedAt) / 1000);
    }
  }
}

/** Longest queue time and execution of a request, in milliseconds. */
class LongestStages {
  queue = 0;
  infer = 0;
  readonly onTiming = ({ queueSeconds, inferSeconds }: EmbedTiming): void => {
    this.queue = Math.max(this.queue, queueSeconds * 1000);
    this.infer = Math.max(this.infer, inferSeconds * 1000);
  };
}

/** Converts the index of a text from its part to its request. */
function withTextOffset(cause: unknown, first: number): unknown {
  if (!(cause instanceof InvalidEmbeddingError)) return cause;
  const text = first + cause.index;
  const message = cause.problem.replace(/^text \d+ /, `text ${text} `);
  return new EmbedError("invalid_embedding", message, { cause, text });
}

/** Result of `work`, or the signal's reason if it is aborted first; the result of `work` is then ignored. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
