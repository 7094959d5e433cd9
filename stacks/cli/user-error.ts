/** Wrong usage or settings: one line or several, and exit code 2. */
export class UserError extends Error {
  override readonly name = "UserError";
}

/** Names of the errors that mean wrong usage or settings, whichever part threw them. */
const userErrorNames = new Set(["UserError", "SettingsError"]);

export function isUserError(error: unknown): boolean {
  return error instanceof Error && userErrorNames.has(error.name);
}
