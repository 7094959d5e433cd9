import { z } from "zod";

/** Schemas of the embed API, used for validation, types and OpenAPI. */

export { embedPaths } from "./embed-routes.ts";

/** Content types of images that the service accepts. */
export const imageContentTypes = ["image/jpeg", "image/png", "image/webp"] as const;

/** Other names that clients send for {@link imageContentTypes}. */
export const imageContentTypeAliases = ["image/jpg", "image/pjpeg", "image/x-png"] as const;

export const maxImagesPerRequest = 32;

export const maxTextsPerRequest = 2_048;

/** Maximum length of one text, in UTF-16 code units. Longer than the context of any model. */
export const maxTextLength = 32_768;

/** Query parameter and form field of `POST /embed`, and field of the JSON of the other routes: name of a served model. */
export const modelParameter = "model";
const modelRule = "must be the name of a model";
export const modelName = z
  .string({ error: modelRule })
  .min(1, modelRule)
  .max(100, modelRule)
  .describe("Served model; default: the first one with the modality of the request.");

export const embedding = z.array(z.number()).min(1);

/** Error option of a strict object: each message is `must …`, after the name of the value. */
export const objectError = {
  error: (issue: { readonly code?: string; readonly keys?: readonly string[] }) =>
    issue.code === "unrecognized_keys"
      ? `must not have the field '${issue.keys?.[0]}'`
      : "must be an object",
};

const listError = {
  error: ({ input }: { readonly input?: unknown }) =>
    input === undefined ? "is required" : "must be a list",
};

const string = z.string({ error: "must be a string" }).min(1, "must not be an empty string");

/** Body of `POST /embed/base64`. */
export const embedBase64Request = z.strictObject(
  {
    images: z
      .array(string, listError)
      .min(1, "must not be an empty list")
      .max(maxImagesPerRequest)
      .describe("JPEG, PNG or WebP files, each in base64 (RFC 4648 §4)"),
    model: modelName.nullish(),
  },
  objectError,
);

/** Body of `POST /embed/text`. */
export const embedTextRequest = z.strictObject(
  {
    texts: z
      .array(string.max(maxTextLength), listError)
      .min(1, "must not be an empty list")
      .max(maxTextsPerRequest),
    model: modelName.nullish(),
  },
  objectError,
);

export type EmbedTextRequest = z.infer<typeof embedTextRequest>;

/** Response of all embed routes: one unit-norm vector per image or text, in the order of the request. */
export const embedResponse = z.object({
  embeddings: z.array(embedding),
  /** Name of the model, as in MODELS. */
  model: z.string(),
});
export type EmbedResponse = z.infer<typeof embedResponse>;

/** HTTP status of each `error.code`. */
export const embedErrorStatus = {
  /** The request is malformed: no image, wrong JSON, wrong base64. */
  bad_request: 400,
  /** The bearer token is missing or wrong. */
  /** The model has no tower for the modality: images or texts. */
  unsupported_modality: 400,
  unauthorized: 401,
  /** A web page of another origin sent the request to a server without a key. */
  forbidden: 403,
  not_found: 404,
  /** The server does not serve the model. */
  unknown_model: 404,
  method_not_allowed: 405,
  /** The request arrived too slowly. */
  request_timeout: 408,
  /** A body, an image's pixels or the number of images is over the limit. */
  too_large: 413,
  unsupported_media_type: 415,
  undecodable_image: 422,
  /** The queue is full; retry after `Retry-After`. */
  overloaded: 429,
  /** The client exceeds the rate of its key; retry after `Retry-After`. */
  rate_limited: 429,
  headers_too_large: 431,
  internal: 500,
  /** The model returned a vector that cannot be scaled to unit norm: all zeros or not finite. */
  invalid_embedding: 500,
  /** The server is draining or its backend is unavailable. */
  unavailable: 503,
  /** No result within the caller's `timeout` or the backend's deadline. */
  timeout: 504,
} as const;
export type EmbedErrorCode = keyof typeof embedErrorStatus;

/** Response with a status other than 2xx. `image` or `text` is the index of the item that caused it. */
export const embedErrorResponse = z.object({
  error: z.object({
    code: z.enum(Object.keys(embedErrorStatus) as [EmbedErrorCode, ...EmbedErrorCode[]]),
    message: z.string(),
    image: z.int().min(0).optional(),
    text: z.int().min(0).optional(),
  }),
});
export type EmbedErrorResponse = z.infer<typeof embedErrorResponse>;

/**
 * Query parameter of all embed routes: deadline in microseconds, like Triton's request parameter of this name. After it the response
 * is 504, and images still queued are dropped.
 */
export const timeoutParameter = "timeout";
export const timeoutMicroseconds = z
  .int()
  .min(1)
  .max(3_600_000_000)
  .describe("Deadline of the request in microseconds, after which the response is 504.");

/**
 * Header of a successful response: milliseconds of `receive`, `decode`, `queue`, `infer` and `total`; `download` as well if the
 * request has image URLs.
 */
export const serverTimingHeader = "server-timing";

/**
 * Header of a successful response whose request has fields that the server ignores: `299 - "ignored fields: size"` (RFC 7234 §5.5).
 */
export const warningHeader = "warning";

/** Header of a response with embeddings: name of the model. */
export const modelHeader = "x-embedding-model";

/** Header of a response with embeddings: fingerprint of each modality in it, if known: `image=1f…` or `image=1f…, text=9c…`. */
export const fingerprintHeader = "x-embedding-fingerprint";

/** Header with the shape of a response to `Accept: application/octet-stream`: float32, little endian, row-major. */
export const embeddingShapeHeader = "x-embedding-shape";

export const healthResponse = z.object({ status: z.literal("ok") });
export const readyResponse = z.object({
  ready: z.boolean(),
  /** Reason if not ready, if known. */
  reason: z.string().optional(),
});
