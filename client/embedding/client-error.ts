export type ClientErrorCode =
  /** The service is unreachable or not accepting requests. */
  | "unavailable"
  /** No response within the deadline. */
  | "timeout"
  /** The service stayed overloaded, or the rate of the key exceeded, until the deadline. */
  | "overloaded"
  /** An image cannot be decoded; `image` is its index. */
  | "image"
  /** The service rejected the request; a retry will not succeed. */
  | "rejected"
  /** The response violates the protocol. */
  | "protocol"
  /** The fingerprint of the service is not one that the caller requires (`expect`). */
  | "fingerprint"
  /** The local model is missing or failed. */
  | "model"
  /** An option or environment variable is invalid, or a package it requires is not installed. */
  | "settings"
  /** The client is closed. */
  | "closed";

/** The only error that the client throws. Branch on `code`, not on the message. */
export class ClientError extends Error {
  override readonly name = "ClientError";

  constructor(
    readonly code: ClientErrorCode,
    /** `message` without its `[code]` prefix. */
    readonly problem: string,
    options: ErrorOptions & {
      /** Index of the image that caused the error, in the caller's list. */
      readonly image?: number | undefined;
      /** Index of the text that caused the error, in the caller's list. */
      readonly text?: number | undefined;
    } = {},
  ) {
    super(`[${code}] ${problem}`, options);
    this.image = options.image;
    this.text = options.text;
  }

  readonly image: number | undefined;
  readonly text: number | undefined;
}
