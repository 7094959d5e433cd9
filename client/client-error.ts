export type ClientErrorCode =
  /** The service cannot be reached, or says that it takes no requests now. */
  | "unavailable"
  /** No answer within the deadline. */
  | "timeout"
  /** The service was too busy until the deadline. */
  | "overloaded"
  /** An image cannot be read; `image` says which. */
  | "image"
  /** The service refused the request: trying again will not help. */
  | "rejected"
  /** The answer is not what the service promises. */
  | "protocol"
  /** The local model is missing or failed. */
  | "model"
  /** A setting is wrong. */
  | "settings"
  /** The client was closed. */
  | "closed";

/** The only error that the client throws. Branch on `code`, not on the text. */
export class ClientError extends Error {
  override readonly name = "ClientError";

  constructor(
    readonly code: ClientErrorCode,
    /** Without the code, which the text begins with. */
    readonly problem: string,
    options: ErrorOptions & {
      /** Index, in the caller's list, of the image at fault. */
      readonly image?: number;
    } = {},
  ) {
    super(`[${code}] ${problem}`, options);
    this.image = options.image;
  }

  readonly image: number | undefined;
}
