/** Wrong usage or settings: one line or several, and exit code 2. */
export class UserError extends Error {
  override readonly name = "UserError";
}

/** Names of the errors that mean wrong usage or settings, whichever part threw them. */
const userErrorNames = new Set(["UserError", "SettingsError", "BenchError", "ReviewError"]);

export function isUserError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  // a model file that cannot be loaded was named by the user
  return userErrorNames.has(error.name) || ("code" in error && error.code === "model");
}
