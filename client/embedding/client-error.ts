/** Meaning of each `code`. Rendered to docs/errors.md. */
export const clientErrors = {
  unavailable: "The service is unreachable or not accepting requests.",
  timeout: "No response within the deadline.",
  overloaded: "The service stayed overloaded, or the rate of the key exceeded, until the deadline.",
  image: "An image cannot be decoded; `image` is its index.",
  rejected: "The service rejected the request; a retry will not succeed.",
  protocol: "The response violates the protocol.",
  fingerprint: "The fingerprint of the service is not one that the caller requires (`expect`).",
  model: "The local model is missing or failed.",
  settings:
    "An option or environment variable is invalid, or a package it requires is not installed.",
  closed: "The client is closed.",
} as const;
export type ClientErrorCode = keyof typeof clientErrors;

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
