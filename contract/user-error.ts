/** Wrong usage, settings or input: one line for the user, and exit code 2. Any function that reads these may throw it, and does not say so. */
export class UserError extends Error {
  override readonly name: string = "UserError";
}

/** Message of a thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
