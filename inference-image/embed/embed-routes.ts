import type { FastifyReply, FastifyRequest } from "fastify";
import { maxJsonBytes } from "../../client/triton/parse-json.ts";
import {
  embeddingShapeHeader,
  imageContentTypes,
  serverTimingHeader,
} from "../../contract/embed-api.ts";
import { embedRoutes } from "../../contract/embed-routes.ts";
import { embeddingDims } from "../../contract/model-signature.ts";
import {
  imageTypeOf,
  type Preprocessor,
  type RunOptions,
} from "../../inference/preprocess/preprocess.ts";
import type { Admission } from "../http/admission.ts";
import { EmbedError } from "../http/embed-error.ts";
import { toEmbedError } from "../http/errors.ts";
import type { JsonThread } from "../http/json-thread.ts";
import type { AddRoute } from "./add-route.ts";
import type { Embedder } from "./embedder.ts";
import type { EmbedMetrics } from "./metrics.ts";
import type { RequestAdmission } from "./request-admission.ts";
import { imagesOfBody } from "./request-images.ts";
import { binaryBody, jsonBody } from "./response-body.ts";

export interface EmbedRoutesOptions {
  readonly requests: RequestAdmission;
  readonly pipeline: EmbedPipeline;
  readonly admission: Admission;
  readonly json: JsonThread;
  readonly metrics: EmbedMetrics;
  readonly model: () => string;
  readonly maxBodyBytes: number;
}

/** Registers `POST /embed` and `POST /embed/base64`. */
export function registerEmbedRoutes(addRoute: AddRoute, options: EmbedRoutesOptions): void {
  const { requests, json, maxBodyBytes } = options;
  const multipartOrImage = ["multipart/form-data", ...imageContentTypes];
  addRoute(
    embedRoutes.embed,
    (request, reply) => embedRequest(request, reply, imagesOfBody, options),
    requests.hook(multipartOrImage, maxBodyBytes),
  );
  const imagesOfJson = async ({ body }: FastifyRequest) => {
    if (Buffer.isBuffer(body)) return json.images(body);
    throw new EmbedError("bad_request", "the body is empty: send JSON");
  };
  addRoute(
    embedRoutes.embedBase64,
    (request, reply) => embedRequest(request, reply, imagesOfJson, options),
    requests.hook(["application/json"], Math.min(maxJsonBytes, maxBodyBytes)),
  );
}

/** Durations of the stages of a request, in milliseconds. */
interface StageTimes {
  decode: number;
  queue: number;
  infer: number;
}

async function embedRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  read: (request: FastifyRequest) => Promise<readonly Uint8Array[]>,
  { requests, pipeline, admission, metrics, model }: EmbedRoutesOptions,
): Promise<FastifyReply> {
  const { reservation, signal, startedAt, arrivedAt } = requests.of(request);
  const images = await read(request);
  signal.throwIfAborted();
  reservation.parsed();
  admission.checkImages(images.length);
  const times: StageTimes = { decode: 0, queue: 0, infer: 0 };
  metrics.pending(images.length);
  // images that share one body cannot be transferred to different threads
  const transferable =
    images.every(ownsItsMemory) || (images.length === 1 && ownsItsMemory(request.body));
  const file = transferable ? "transferred" : "copied";
  const vectors = await pipeline
    .embed(images, { signal, file }, times)
    .finally(() => metrics.pending(-images.length));
  metrics.embedded(vectors.length);
  admission.recordCompleted(vectors.length);

  const binary = request.headers.accept?.includes("application/octet-stream") ?? false;
  const body = binary ? binaryBody(vectors) : jsonBody(vectors, model());
  const total = performance.now() - startedAt;
  metrics.overhead(Math.max(0, total - times.decode - times.queue - times.infer) / 1000);
  reply.header(
    serverTimingHeader,
    serverTiming({ receive: arrivedAt - startedAt, ...times, total }),
  );
  if (binary) {
    reply
      .type("application/octet-stream")
      .header(embeddingShapeHeader, `${vectors.length},${embeddingDims}`);
  }
  return reply.send(body);
}

export interface EmbedPipelineOptions {
  readonly embedder: () => Embedder | undefined;
  readonly preprocessor: Preprocessor;
  readonly metrics: EmbedMetrics;
}

/** Decodes image files and embeds the result. */
export class EmbedPipeline {
  readonly #options: EmbedPipelineOptions;
  #decoding = 0;

  constructor(options: EmbedPipelineOptions) {
    this.#options = options;
  }

  /** Number of images that are being decoded or wait for the model. */
  get queuedImages(): number {
    return this.#decoding + (this.#options.embedder()?.waitingImages ?? 0);
  }

  /**
   * Embeds image files.
   *
   * @param times - Receives the durations of the stages.
   * @returns 512 float32 per image, in order.
   * @throws {EmbedError} for the first invalid image, or the reason of the signal
   */
  async embed(
    images: readonly Uint8Array[],
    options: Required<RunOptions>,
    times: StageTimes,
  ): Promise<readonly Float32Array[]> {
    const { preprocessor } = this.#options;
    const embedder = this.#options.embedder();
    if (embedder === undefined) throw new EmbedError("unavailable", "the model is loading");
    const input = embedder.input ?? "pixels";
    const compute = async () => {
      const { inputs, vectors } = await this.#submit(images, embedder, input, options, times);
      const result = await vectors;
      if (input === "pixels") for (const pixels of inputs) preprocessor.recycle(pixels);
      return result;
    };
    return unlessAborted(compute(), options.signal);
  }

  /** Decodes the images and queues them for the model. They are announced to the batcher while they are decoded. */
  async #submit(
    images: readonly Uint8Array[],
    embedder: Embedder,
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
    times: StageTimes,
  ) {
    const settleAnnouncement = embedder.announce();
    try {
      const startedAt = performance.now();
      const inputs = await this.#decodeAll(images, input, options);
      times.decode = performance.now() - startedAt;
      const vectors = embedder.embed(inputs, {
        signal: options.signal,
        onTiming: ({ queueSeconds, inferSeconds }) => {
          times.queue = Math.max(times.queue, queueSeconds * 1000);
          times.infer = Math.max(times.infer, inferSeconds * 1000);
        },
      });
      return { inputs, vectors };
    } finally {
      settleAnnouncement();
    }
  }

  /** @throws {EmbedError} for the first invalid image, by index */
  async #decodeAll(
    images: readonly Uint8Array[],
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<readonly Uint8Array[]> {
    this.#decoding += images.length;
    const results = await Promise.allSettled(
      images.map((image) => this.#decode(image, input, options)),
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
    input: "pixels" | "encoded",
    options: Required<RunOptions>,
  ): Promise<Uint8Array> {
    const startedAt = performance.now();
    try {
      if (image.length === 0) throw new EmbedError("unsupported_media_type", "is empty");
      if (input === "pixels") return await this.#options.preprocessor.run(image, options);
      if (imageTypeOf(image) !== undefined) return image;
      throw new EmbedError("unsupported_media_type", "is not a JPEG, PNG or WebP file");
    } finally {
      this.#decoding -= 1;
      this.#options.metrics.decoded((performance.now() - startedAt) / 1000);
    }
  }
}

/** Returns whether an array spans its whole buffer; a small body that arrived in chunks does not. */
function ownsItsMemory(body: unknown): boolean {
  return body instanceof Uint8Array && body.byteLength === body.buffer.byteLength;
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

/** `receive;dur=0.123, …`, in milliseconds. */
function serverTiming(ms: Readonly<Record<string, number>>): string {
  return Object.entries(ms)
    .map(([name, duration]) => `${name};dur=${duration.toFixed(3)}`)
    .join(", ");
}
