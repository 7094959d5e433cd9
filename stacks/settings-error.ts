import { UserError } from "../contract/user-error.ts";

/** All errors of the settings, one per line. */
export class SettingsError extends UserError {
  override readonly name = "SettingsError";

  constructor(readonly lines: readonly string[]) {
    super(lines.join("\n"));
  }
}
