import {
  type EmbedErrorCode,
  type EmbedErrorResponse,
  embedErrorStatus,
  maxImagesPerRequest,
} from "../../contract/embed-api.ts";

/** Error response of the embed API. Branch on `code`, not on the text. */
export class EmbedError extends Error {
  override readonly name = "EmbedError";

  constructor(
    readonly code: EmbedErrorCode,
    message: string,
    /** Index of the invalid image. */
    readonly image?: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  get status(): number {
    return embedErrorStatus[this.code];
  }

  get body(): EmbedErrorResponse {
    const { code, message, image } = this;
    return { error: { code, message, ...(image === undefined ? {} : { image }) } };
  }
}

export function tooManyImages(got: string): EmbedError {
  return new EmbedError("too_large", `images must be 1 to ${maxImagesPerRequest}, got ${got}`);
}
