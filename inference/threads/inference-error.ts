export type InferenceErrorCode =
  /** The queue timeout has passed or the caller has disconnected. */
  | "expired"
  | "draining"
  | "failed"
  /** The model file is missing or cannot be loaded. */
  | "model";

/** The only error of sessions, batchers and decoding threads. Branch on `code`, not on the message. */
export class InferenceError extends Error {
  override readonly name = "InferenceError";

  constructor(
    readonly code: InferenceErrorCode,
    /** `message` without its `[code]` prefix. */
    readonly problem: string,
    options?: ErrorOptions,
  ) {
    super(`[${code}] ${problem}`, options);
  }
}
