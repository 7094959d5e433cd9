import { z } from "zod";
import { embeddingDims } from "./model-signature.ts";

/** The embed API: one schema validates, documents (OpenAPI) and types it. */

export { embedPaths } from "./embed-paths.ts";

/** Content types of an image that the service reads. */
export const imageContentTypes = ["image/jpeg", "image/png", "image/webp"] as const;

/** The most images in one request. */
export const maxImagesPerRequest = 32;

export const embedding = z.array(z.number()).length(embeddingDims);

/** Body of `POST /embed/base64`. */
export const embedBase64Request = z.strictObject({
  images: z
    .array(z.string().min(1))
    .min(1)
    .max(maxImagesPerRequest)
    .describe("JPEG, PNG or WebP files, each in base64 (RFC 4648 §4)"),
});

/** Answer of both embed routes: one unit-norm vector an image, in the order of the request. */
export const embedResponse = z.object({
  embeddings: z.array(embedding),
  model: z.string(),
});
export type EmbedResponse = z.infer<typeof embedResponse>;

/** Codes of `error.code`, each with its HTTP status. */
export const embedErrorStatus = {
  /** The request is malformed: no image, wrong JSON, wrong base64. */
  bad_request: 400,
  /** The bearer token is missing or wrong. */
  unauthorized: 401,
  not_found: 404,
  method_not_allowed: 405,
  /** The request arrived too slowly. */
  request_timeout: 408,
  /** A body, an image's pixels or the number of images is over the limit. */
  too_large: 413,
  unsupported_media_type: 415,
  /** The bytes are not an image that can be decoded. */
  undecodable_image: 422,
  /** The queue is full; come back after `Retry-After`. */
  overloaded: 429,
  headers_too_large: 431,
  internal: 500,
  /** The model computed a vector that cannot be scaled to unit norm: all zeros, or not finite. */
  invalid_embedding: 500,
  /** Draining, or no model behind the gateway. */
  unavailable: 503,
  /** No answer within the caller's `timeout`, or none from the model behind the gateway. */
  timeout: 504,
} as const;
export type EmbedErrorCode = keyof typeof embedErrorStatus;

/** Every answer that is not 2xx. `image` is the index of the image at fault. */
export const embedErrorResponse = z.object({
  error: z.object({
    code: z.enum(Object.keys(embedErrorStatus) as [EmbedErrorCode, ...EmbedErrorCode[]]),
    message: z.string(),
    image: z.int().min(0).optional(),
  }),
});
export type EmbedErrorResponse = z.infer<typeof embedErrorResponse>;

/**
 * Query parameter of both embed routes: how long the caller waits, in microseconds, as Triton's request parameter of this
 * name. Then the answer is 504, and what has not been computed by then is not computed.
 */
export const timeoutParameter = "timeout";
export const timeoutMicroseconds = z
  .int()
  .min(1)
  .max(3_600_000_000)
  .describe("How long the caller waits for the answer, in microseconds; then it is 504.");

/** Header of a successful answer: milliseconds of `receive`, `decode`, `queue`, `infer` and `total`. */
export const serverTimingHeader = "server-timing";

/** With `Accept: application/octet-stream` the vectors come as float32, little endian, row after row, with this header. */
export const embeddingShapeHeader = "x-embedding-shape";

/** Names of the embed server's own metrics, in `GET /metrics`. Times in seconds. */
export const embedMetrics = {
  /** Counter, by `route` and `status`. */
  requests: "clipstack_embed_requests_total",
  /** Histogram of whole requests, by `route`. */
  requestSeconds: "clipstack_embed_request_duration_seconds",
  /** Counter of images that were embedded. */
  images: "clipstack_embed_images_total",
  /** Histogram of reading and resizing one image. */
  decodeSeconds: "clipstack_embed_decode_duration_seconds",
  /** Histogram of how long a request waited for its batch. */
  queueSeconds: "clipstack_embed_queue_duration_seconds",
  /** Histogram of one execution of the model; of one call to Triton with the backend `triton`. */
  inferSeconds: "clipstack_embed_infer_duration_seconds",
  /** Histogram of what the server itself takes of a request: all but decoding, queue and inference. */
  overheadSeconds: "clipstack_embed_overhead_duration_seconds",
  /** Histogram of images in one execution. */
  batchSize: "clipstack_embed_batch_size",
  /** Gauge: images that were accepted and have no answer yet. */
  pendingImages: "clipstack_embed_pending_images",
  /** Gauge: bytes of the bodies that were let in and are not answered yet. */
  pendingBytes: "clipstack_embed_pending_bytes",
  /** Counter of calls to Tritons, repeated ones included, by `target`; with the backend `triton`, as those below. */
  tritonRequests: "clipstack_embed_triton_requests_total",
  /** Counter of those that had no answer, or an error. */
  tritonFailures: "clipstack_embed_triton_failures_total",
  /** Gauge: addresses of a `target` that can be used; 1 or 0 where it has one address. */
  tritonHealthy: "clipstack_embed_triton_healthy",
} as const;

export const healthResponse = z.object({ status: z.literal("ok") });
export const readyResponse = z.object({
  ready: z.boolean(),
  /** Why not, where that is known. */
  reason: z.string().optional(),
});
