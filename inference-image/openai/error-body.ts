import {
  type OpenAiErrorResponse,
  openAiErrorCodes,
  openAiErrorType,
} from "../../contract/openai-api.ts";
import type { EmbedError } from "../../http/embed-error.ts";

/** Body of an error in OpenAI's format. */
export function openAiErrorBody(error: EmbedError): OpenAiErrorResponse {
  const { code, message, status, image } = error;
  const param = error.param ?? (image === undefined ? null : "input");
  return {
    error: { message, type: openAiErrorType(status), param, code: openAiErrorCodes[code] ?? code },
  };
}
