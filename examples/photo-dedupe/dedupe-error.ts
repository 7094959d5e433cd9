export type DedupeErrorCode =
  /** Wrong usage or settings: exit code 2. */
  | "usage"
  /** The work could not be done: exit code 1. */
  | "failed";

/** What a person is told in one line: the thing, the rule and the value. */
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

/** Why the system refused, in words; the code where there are none for it. */
export function systemReason(error: unknown): string {
  const { code, message } = error as { readonly code?: string; readonly message?: string };
  switch (code) {
    case "ENOENT":
      return "does not exist";
    case "EACCES":
    case "EPERM":
      return "permission denied";
    case "ENOTDIR":
      return "is not a folder";
    case "EISDIR":
      return "is a folder";
    case "ENOSPC":
      return "no space left on the disk";
    case "ELOOP":
      return "too many links";
    default:
      return (message ?? String(error)).split("\n")[0] ?? "";
  }
}

/** Why the system refused a path. One that is not UTF-8 comes with marks in place of what it is not, and is not found by it. */
export function pathProblem(path: string, error: unknown): string {
  const { code } = error as { readonly code?: string };
  if (code === "ENOENT" && path.includes("\ufffd")) return "its name is not UTF-8: rename it";
  return systemReason(error);
}
