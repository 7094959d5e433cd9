/** Triton's error codes by meaning, and `too-slow`. HTTP and gRPC map each to a status. */
export type OipErrorCode =
  /** The queue of all models is full. */
  | "overloaded"
  /** The body arrived too slowly while the queue was full. */
  | "too-slow"
  | "invalid-argument"
  | "not-found"
  | "unavailable"
  | "unsupported"
  | "internal"
  | "cancelled";

/** Error response of the Open Inference Protocol. The message is Triton's if it has one. */
export class OipError extends Error {
  override readonly name = "OipError";

  constructor(
    readonly code: OipErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Error for a request or configuration that the server rejects. */
export function invalidArgument(message: string, cause?: unknown): OipError {
  return new OipError("invalid-argument", message, { cause });
}

/** Unexpected error in one line for the log, with the location at which it was thrown. */
export function errorWithLocation(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const frame = error.stack?.split("\n").find((line) => line.trimStart().startsWith("at "));
  return `${error.name}: ${error.message} ${frame?.trim() ?? ""}`.replaceAll(/\s+/g, " ").trim();
}
