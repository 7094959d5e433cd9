/** Triton's error codes, by what they mean, and one of our own. HTTP and gRPC each have a status for them. */
export type OipErrorCode =
  /** Too much waits already, over all models: try again later. */
  | "overloaded"
  /** The body did not arrive in time, while others waited. */
  | "too-slow"
  | "invalid-argument"
  | "not-found"
  | "unavailable"
  | "unsupported"
  | "internal"
  | "cancelled";

/** Why a call of the Open Inference Protocol failed. The message is Triton's, where it has one, and goes to the client. */
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

/** An error that nobody expected, in one line for the log: what it says, and where it comes from. */
export function whereOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const frame = error.stack?.split("\n").find((line) => line.trimStart().startsWith("at "));
  return `${error.name}: ${error.message} ${frame?.trim() ?? ""}`.replaceAll(/\s+/g, " ").trim();
}
