import { getSystemErrorMap } from "node:util";

export type DedupeErrorCode =
  /** Wrong usage or settings: exit code 2. */
  | "usage"
  /** The command could not be completed: exit code 1. */
  | "failed";

/** Error that is printed as one line, which names the input, the rule and the value. */
export class DedupeError extends Error {
  override readonly name = "DedupeError";

  constructor(
    readonly code: DedupeErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Returns one line for an error: the system's description without code and path, or the first line of its message. */
export function reasonOf(error: unknown): string {
  const { errno, message } = error as { readonly errno?: number; readonly message?: string };
  const [, description] = getSystemErrorMap().get(errno ?? 0) ?? [];
  return description ?? (message ?? String(error)).split("\n")[0] ?? "";
}
