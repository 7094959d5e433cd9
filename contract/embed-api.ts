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

/** HTTP status, meaning and remedy of each `error.code`. Rendered to docs/errors.md. */
export const embedErrors = {
  bad_request: {
    status: 400,
    meaning: "The request is malformed: no image, invalid JSON or base64, a value out of range.",
    next: "Correct the field that the message names.",
  },
  unsupported_modality: {
    status: 400,
    meaning: "The model has no tower for images or texts.",
    next: "Name another model, or serve its other tower (`modalities`).",
  },
  unauthorized: {
    status: 401,
    meaning: "The bearer token is missing or wrong.",
    next: "Send `Authorization: Bearer <key>`.",
  },
  forbidden: {
    status: 403,
    meaning:
      "Without a key on the loopback interface: `Host` or `Origin` names another address, as when a web page of another origin sends the request.",
    next: "Give the server a key.",
  },
  not_found: { status: 404, meaning: "No route has the path.", next: "Compare it with the API." },
  unknown_model: {
    status: 404,
    meaning: "The server does not serve the model.",
    next: "Use one that the message lists, or add it to `models`.",
  },
  method_not_allowed: {
    status: 405,
    meaning: "The route does not accept the method.",
    next: "Use one of the header `Allow`.",
  },
  request_timeout: {
    status: 408,
    meaning:
      "The body arrived slower than 64 KiB/s while other requests were queued, or the headers took longer than 15 s.",
    next: "Send smaller images or batches over this link.",
  },
  too_large: {
    status: 413,
    meaning:
      "Body, pixels of an image, number of images or texts, or length of a text (32768 characters) over the limit.",
    next: "Send fewer or smaller items; JSON is limited to 16 MiB, a form is not.",
  },
  unsupported_media_type: {
    status: 415,
    meaning: "The body is not of a supported media type, or an image is no JPEG, PNG or WebP.",
    next: "Set `Content-Type`, or convert the image.",
  },
  undecodable_image: {
    status: 422,
    meaning: "The image cannot be decoded, or not within `DECODE_TIMEOUT_MS`.",
    next: "Leave out the image with the index `image`.",
  },
  overloaded: {
    status: 429,
    meaning:
      "`MAX_QUEUE_SIZE` images or `MAX_QUEUE_BYTES` bytes are queued, or three quarters of these bytes by one client address.",
    next: "Retry after `Retry-After`, which follows from the queue and the recent throughput; add replicas if it lasts.",
  },
  rate_limited: {
    status: 429,
    meaning: "The client exceeds the rate of its key.",
    next: "Retry after `Retry-After`, the time until the next request is accepted.",
  },
  headers_too_large: {
    status: 431,
    meaning: "The headers are over the limit.",
    next: "Send fewer headers.",
  },
  internal: {
    status: 500,
    meaning: "Unexpected error.",
    next: "The log of the server has the reason.",
  },
  invalid_embedding: {
    status: 500,
    meaning: "The model computed a vector whose norm is zero or not finite.",
    next: "Run `clipstack model check`; try fp32.",
  },
  unavailable: {
    status: 503,
    meaning:
      "The model is loading, the server is stopping, or no Triton server has been healthy for two seconds.",
    next: "Retry after `Retry-After`; `/readyz` has the reason.",
  },
  timeout: {
    status: 504,
    meaning: "The deadline of the request has passed.",
    next: "Raise `timeout`, or send fewer images per request.",
  },
} as const;
export type EmbedErrorCode = keyof typeof embedErrors;

/** HTTP status of each `error.code`. */
export const embedErrorStatus = Object.fromEntries(
  Object.entries(embedErrors).map(([code, { status }]) => [code, status]),
) as { readonly [Code in EmbedErrorCode]: (typeof embedErrors)[Code]["status"] };

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
