import {
  type EmbedErrorCode,
  type EmbedErrorResponse,
  embedErrorStatus,
  maxImagesPerRequest,
} from "../contract/embed-api.ts";

export interface EmbedErrorOptions extends ErrorOptions {
  /** Index of the invalid image. */
  readonly image?: number | undefined;
  /** Index of the invalid text. */
  readonly text?: number | undefined;
  /** Field of the request that caused the error, for OpenAI-compatible routes. */
  readonly param?: string | undefined;
  /** Time after which the client may retry, in seconds. */
  readonly retryAfterSeconds?: number | undefined;
}

/** Error response of the embed API. Branch on `code`, not on the text. */
export class EmbedError extends Error {
  override readonly name = "EmbedError";
  /** As in {@link EmbedErrorOptions}. */
  readonly image: number | undefined;
  readonly text: number | undefined;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(
    readonly code: EmbedErrorCode,
    message: string,
    options: EmbedErrorOptions = {},
  ) {
    super(message, options);
    this.image = options.image;
    this.text = options.text;
    this.param = options.param;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }

  get status(): number {
    return embedErrorStatus[this.code];
  }

  get body(): EmbedErrorResponse {
    const { code, message, image, text } = this;
    return {
      error: {
        code,
        message,
        ...(image === undefined ? {} : { image }),
        ...(text === undefined ? {} : { text }),
      },
    };
  }
}

export function tooManyImages(got: string): EmbedError {
  return new EmbedError("too_large", `images must be 1 to ${maxImagesPerRequest}, got ${got}`);
}
