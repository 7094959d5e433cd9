import type { ModelSpec } from "../../contract/model-spec.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { mapConcurrently } from "../../inference/map-concurrently.ts";
import {
  imageTypeOf,
  type Preprocessor,
  type RunOptions,
} from "../../inference/preprocess/preprocess.ts";
import { InvalidEmbeddingError } from "../../inference/session/embeddings.ts";
import { toEmbedError } from "../http/errors.ts";
import type { EmbedTiming } from "./embedder.ts";
import type { EmbedMetrics } from "./metrics.ts";
import type { ImageModel, ServedModels, TextModel } from "./served-models.ts";

export interface EmbedPipelineOptions {
  readonly models: ServedModels;
  readonly preprocessor: Preprocessor;
  readonly metrics: EmbedMetrics;
}

/** Durations of the stages of a request, in milliseconds. */
export interface StageTimes {
  decode: number;
  queue: number;
  infer: number;
  /** Time until the images of all URLs have arrived; absent without URLs. */
  download?: number;
}

export interface TextEmbeddings {
  /** One vector per text, in order. */
  readonly vectors: readonly Float32Array[];
  /** Token ids of each text before padding, begin and end included. */
  readonly tokens: readonly number[];
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
   * @param times - Receives the durations of the stages.
   * @returns One vector per image, in order.
   * @throws {EmbedError} for the first invalid image, or the reason of the signal
   */
  async images(
    model: ImageModel,
    images: readonly Uint8Array[],
    options: Required<RunOptions>,
    times: StageTimes,
  ): Promise<readonly Float32Array[]> {
    const { preprocessor } = this.#options;
    const input = model.embedder.input ?? "pixels";
    const compute = async () => {
      const { inputs, vectors } = await this.#submit(images, model, input, options, times);
      const result = await vectors;
      if (input === "pixels") {
        for (const [index, pixels] of inputs.entries()) {
          if (pixels !== images[index]) preprocessor.recycle(pixels);
        }
      }
      return result;
    };
    return unlessAborted(compute(), options.signal);
  }

  /**
   * Tokenizes and embeds texts. A request of many texts has only a part of them in the queue, so that others are not delayed.
   *
   * @param times - Receives the durations of the stages; `decode` is the tokenizer's.
   * @throws {EmbedError} the reason of the signal
   */
  async texts(
    { tokenizer, embedder, spec }: TextModel,
    texts: readonly string[],
    { signal }: { readonly signal: AbortSignal },
    times: StageTimes,
  ): Promise<TextEmbeddings> {
    const size = spec.batching.maximum;
    const parts = Array.from({ length: Math.ceil(texts.length / size) }, (_, part) => part * size);
    const tokens: number[] = [];
    const embedPart = async (first: number): Promise<readonly Float32Array[]> => {
      signal.throwIfAborted();
      const startedAt = performance.now();
      const encoded = await tokenizer.encode(texts.slice(first, first + size), signal);
      times.decode += performance.now() - startedAt;
      for (const [index, count] of encoded.tokens.entries()) tokens[first + index] = count;
      const onTiming = longestStage(times);
      return await embedder.embed(encoded, { signal, onTiming }).catch((error: unknown) => {
        throw withTextOffset(error, first);
      });
    };
    const startedAt = performance.now();
    const vectors = await unlessAborted(mapConcurrently(parts, concurrentParts, embedPart), signal);
    if (parts.length > 1) {
      // the parts of the request wait for each other
      times.infer = Math.max(0, performance.now() - startedAt - times.decode - times.queue);
    }
    return { vectors: vectors.flat(), tokens };
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
    options: Required<RunOptions>,
    times: StageTimes,
  ) {
    const { embedder } = model;
    const order = this.#nextOrder();
    const settleAnnouncement = embedder.announce();
    try {
      const startedAt = performance.now();
      const inputs = await this.#decodeAll(images, model, input, options);
      times.decode = performance.now() - startedAt;
      const vectors = embedder.embed(inputs, {
        ...(embedder.takesFile !== undefined && {
          areFiles: inputs.map((decoded, index) => decoded === images[index]),
        }),
        signal: options.signal,
        onTiming: longestStage(times),
        order,
      });
      return { inputs, vectors };
    } finally {
      settleAnnouncement();
    }
  }

  /** @throws {EmbedError} for the first invalid image, by index */
  async #decodeAll(
    images: readonly Uint8Array[],
    model: ImageModel,
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<readonly Uint8Array[]> {
    this.#decoding += images.length;
    const results = await Promise.allSettled(
      images.map((image) => this.#decode(image, model, input, options)),
    );
    options.signal.throwIfAborted();
    return results.map((result, index) => {
      if (result.status === "fulfilled") return result.value;
      const { code, message } = toEmbedError(result.reason);
      throw new EmbedError(code, `image ${index} ${message}`, index, { cause: result.reason });
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
        return await this.#options.preprocessor.run(image, model.tower.input, options);
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

/** Records the longest queue time and execution of a request. */
function longestStage(times: StageTimes): (timing: EmbedTiming) => void {
  return ({ queueSeconds, inferSeconds }) => {
    times.queue = Math.max(times.queue, queueSeconds * 1000);
    times.infer = Math.max(times.infer, inferSeconds * 1000);
  };
}

/** Converts the index of a text from its part to its request. */
function withTextOffset(cause: unknown, first: number): unknown {
  if (!(cause instanceof InvalidEmbeddingError)) return cause;
  const text = first + cause.index;
  const message = cause.problem.replace(/^text \d+ /, `text ${text} `);
  return new EmbedError("invalid_embedding", message, undefined, { cause, text });
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
