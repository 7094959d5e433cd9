/** Wrong usage, settings or input: one line for the user, and exit code 2. */
export class UserError extends Error {
  override readonly name: string = "UserError";
}

/** Message of a thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
