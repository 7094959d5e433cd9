import { TritonError, type TritonErrorCode } from "../../client/triton/transport.ts";
import { type EmbedErrorCode, imageContentTypes } from "../../contract/embed-api.ts";
import { EmbedError } from "../../http/embed-error.ts";
import { ImageError } from "../../inference/preprocess/preprocess.ts";
import { InvalidEmbeddingError } from "../../inference/session/embeddings.ts";
import {
  InferenceError,
  type InferenceErrorCode,
} from "../../inference/threads/inference-error.ts";

const inferenceCodes: Readonly<Record<InferenceErrorCode, EmbedErrorCode>> = {
  expired: "timeout",
  draining: "unavailable",
  failed: "internal",
  model: "internal",
};

const tritonCodes: Readonly<Record<TritonErrorCode, EmbedErrorCode>> = {
  timeout: "timeout",
  unavailable: "unavailable",
  cancelled: "timeout",
  rejected: "internal",
  protocol: "internal",
};

/** Fastify's code for a missing or unsupported content type. */
const invalidMediaType = "FST_ERR_CTP_INVALID_MEDIA_TYPE";
const mediaTypes = `the body must be ${imageContentTypes.join(", ")} or multipart/form-data, or base64 or texts in application/json`;

/** Replaces the addresses of upstreams, which clients must not learn. */
export function withoutAddresses(text: string): string {
  return text.replace(
    /(?:\b[a-z]{1,8}:\/\/)?(?:\[[0-9a-f:.]{2,45}\]|\b[\w.-]{1,255}):\d{1,5}\b|(?<=ENOTFOUND |EAI_AGAIN )\S{1,255}/gi,
    "upstream",
  );
}

/** Converts any error to a response. An unexpected error becomes `internal`, without its text. */
export function toEmbedError(error: unknown): EmbedError {
  if (error instanceof EmbedError) return error;
  const options = { cause: error };
  if (error instanceof ImageError) {
    return new EmbedError(error.code, error.message, options);
  }
  if (error instanceof InvalidEmbeddingError) {
    const { modality, index, problem } = error;
    return new EmbedError("invalid_embedding", problem, { ...options, [modality]: index });
  }
  if (error instanceof InferenceError) {
    return new EmbedError(inferenceCodes[error.code], error.problem, options);
  }
  if (error instanceof TritonError) {
    return new EmbedError(tritonCodes[error.code], withoutAddresses(error.problem), options);
  }
  const {
    code = "",
    statusCode,
    message,
  } = error as {
    code?: string;
    statusCode?: number;
    message: string;
  };
  if (code === invalidMediaType) {
    return new EmbedError("unsupported_media_type", mediaTypes, options);
  }
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return new EmbedError("bad_request", message, options);
  }
  return new EmbedError("internal", "internal error; see the server log", options);
}
