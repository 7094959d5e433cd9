import { z } from "zod";
import { type EmbedErrorCode, objectError } from "./embed-api.ts";

/**
 * Schemas of the OpenAI-compatible routes `POST /v1/embeddings`, `GET /v1/models` and `GET /v1/models/{model}`. They differ from OpenAI's
 * API in two points: images are accepted as input, in the forms that other servers define, and token ids are rejected, because the
 * server tokenizes texts itself.
 */

/** Prefix of the OpenAI-compatible routes, whose errors have OpenAI's format. */
export const openAiPrefix = "/v1/";

/** Maximum number of inputs per request, as in OpenAI's API. Of these, images are limited further. */
export const maxInputsPerRequest = 2_048;

/** String that is an image, not a text: a `data:` URI in base64. */
export const base64DataUri = /^data:[^,\s]*;base64,/i;

const tooManyInputs = `must have at most ${maxInputsPerRequest} items`;
const dimensionsRule = "must be a whole number above 0";
const notEmpty = "must not be an empty string";

const text = z.string().min(1, notEmpty);
const imageSource = z
  .string()
  .min(1, notEmpty)
  .describe(
    "JPEG, PNG or WebP file: base64 (RFC 4648 §4), a `data:` URI in base64, or a URL of a host that the server allows.",
  );

/** Part of a message of a chat, also accepted as input. */
const textPart = z.object({ type: z.literal("text"), text: z.string() });
const imagePart = z.object({
  type: z.literal("image_url"),
  image_url: z.union([imageSource, z.object({ url: imageSource })]),
});

const inputItem = z.union([
  text.describe("Text, or an image as `data:image/…;base64,…`."),
  z.strictObject({ image: imageSource }),
  z.strictObject({ text }).describe("Text, also one that looks like an image."),
  textPart,
  imagePart,
]);
export type EmbeddingInput = z.infer<typeof inputItem>;

const hasTokenIds = (input: unknown): boolean =>
  typeof input === "number" || (Array.isArray(input) && input.some(hasTokenIds));

/** Returns the rule that an `input` of another type violates. */
function inputRule({ input }: { readonly input?: unknown }): string {
  if (hasTokenIds(input)) {
    return "must be texts or images, got token ids: the server has its own tokenizer";
  }
  if (!Array.isArray(input)) return 'must be a text, {"image": "…"} or a list of both';
  if (input.length > maxInputsPerRequest) return tooManyInputs;
  const index = input.findIndex((item) => !inputItem.safeParse(item).success);
  return `must contain only texts, {"image": "…"} and {"text": "…"}, got another value at index ${index}`;
}

const inputList = z
  .array(inputItem)
  .min(1, "must not be an empty list")
  .max(maxInputsPerRequest, tooManyInputs);

const messages = z
  .array(z.object({ content: z.union([z.string(), z.array(z.union([textPart, imagePart]))]) }), {
    error: "must be a list of messages with a text or an image",
  })
  .min(1, "must not be an empty list");

const modality = z.enum(["text", "image"], { error: "must be text or image" });

/** Body of `POST /v1/embeddings`. Optional fields may be `null`; unknown ones are ignored. */
export const embeddingsRequest = z
  .looseObject(
    {
      input: z
        .union([inputItem, inputList], { error: inputRule })
        .optional()
        .describe("One text or image, or a list of both. Token ids are rejected."),
      messages: messages
        .optional()
        .describe("In place of `input`: a chat, as for vLLM, with one text or one image."),
      model: z
        .string({ error: "must be the name of a model" })
        .min(1, notEmpty)
        .optional()
        .describe(
          "Name of a served model. Default: the first one that has all modalities of the input.",
        ),
      encoding_format: z
        .enum(["float", "base64"], { error: "must be float or base64" })
        .optional()
        .describe("`base64`: little-endian float32. Default: `float`."),
      embedding_type: z
        .enum(["float", "base64"], { error: "must be float or base64" })
        .optional()
        .describe("As `encoding_format`, which takes precedence."),
      dimensions: z
        .int({ error: dimensionsRule })
        .min(1, dimensionsRule)
        .optional()
        .describe("Width of the embeddings, for models whose embeddings can be truncated."),
      modality: z
        .union([modality, z.array(modality)], { error: "must be text or image, or one per input" })
        .optional()
        .describe("`image`: strings of the input are images. A list has one value per input."),
      truncate: z
        .union([z.boolean(), z.enum(["END", "NONE"])], {
          error: "must be END or NONE: the server cuts off the end of long texts",
        })
        .optional()
        .describe("`NONE` or false: a text that fills the whole context of the model is rejected."),
      normalized: z
        .literal(true, { error: "must be true: all embeddings have unit L2 norm" })
        .optional(),
      input_type: z.string({ error: "must be a string" }).optional().describe("Ignored."),
      user: z.string({ error: "must be a string" }).optional().describe("Ignored."),
    },
    objectError,
  )
  .superRefine(({ input, messages, modality }, context) => {
    const fail = (field: string, message: string) =>
      context.addIssue({ code: "custom", path: [field], message });
    if (input === undefined && messages === undefined) fail("input", "is required");
    if (input !== undefined && messages !== undefined) {
      fail("messages", "must be omitted if the body has input");
    }
    const inputs = Array.isArray(input) ? input.length : 1;
    if (Array.isArray(modality) && modality.length !== inputs) {
      fail("modality", `must have one value per input (${inputs}), got ${modality.length}`);
    }
  });
export type EmbeddingsRequest = z.infer<typeof embeddingsRequest>;

/** Fields of {@link embeddingsRequest}; others are ignored. */
export const embeddingsFields: ReadonlySet<string> = new Set(Object.keys(embeddingsRequest.shape));

/** Response of `POST /v1/embeddings`: one embedding per input, in the order of the request. */
export const embeddingsResponse = z.object({
  object: z.literal("list"),
  data: z.array(
    z.object({
      object: z.literal("embedding"),
      index: z.int().min(0),
      embedding: z.union([z.array(z.number()), z.string()]),
    }),
  ),
  model: z.string(),
  usage: z
    .object({ prompt_tokens: z.int().min(0), total_tokens: z.int().min(0) })
    .describe("Token ids of the texts, without padding. Images count 0."),
});
export type EmbeddingsResponse = z.infer<typeof embeddingsResponse>;

const fingerprint = z.string().regex(/^[0-9a-f]{64}$/);

/** Response of `GET /v1/models/{model}`. `modalities`, `dimensions` and `fingerprints` are additions to OpenAI's format. */
export const modelResponse = z.object({
  id: z.string(),
  object: z.literal("model"),
  created: z.int().min(0).describe("Time at which the server started, in Unix seconds."),
  owned_by: z.string(),
  modalities: z.array(z.enum(["image", "text"])),
  dimensions: z.int().min(1).describe("Width of the model's embeddings."),
  fingerprints: z
    .object({ image: fingerprint.optional(), text: fingerprint.optional() })
    .describe(
      "Identify the weights, preprocessing and precision that make the embeddings of each modality, if known.",
    ),
});
export type ModelResponse = z.infer<typeof modelResponse>;

/** Response of `GET /v1/models`. */
export const modelsResponse = z.object({
  object: z.literal("list"),
  data: z.array(modelResponse),
});

/** Response with a status other than 2xx of a route under {@link openAiPrefix}. */
export const openAiErrorResponse = z.object({
  error: z.object({
    message: z.string(),
    type: z.enum(["invalid_request_error", "rate_limit_error", "server_error"]),
    param: z.string().nullable().describe("Field of the request that caused the error."),
    code: z.string(),
  }),
});
export type OpenAiErrorResponse = z.infer<typeof openAiErrorResponse>;

/** Codes that OpenAI's API names differently. All others are those of the embed API. */
export const openAiErrorCodes: Readonly<Partial<Record<EmbedErrorCode | "unknown_model", string>>> =
  {
    unauthorized: "invalid_api_key",
    overloaded: "rate_limit_exceeded",
    rate_limited: "rate_limit_exceeded",
    unknown_model: "model_not_found",
  };

export function openAiErrorType(status: number): OpenAiErrorResponse["error"]["type"] {
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
