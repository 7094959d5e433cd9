import { UserError } from "../../contract/user-error.ts";
import type { ValidSettings } from "./valid-settings.ts";

/** All errors of the settings, one per line. */
export class SettingsError extends UserError {
  override readonly name = "SettingsError";

  /**
   * @param valid - The valid settings of the environment, if only others are invalid.
   */
  constructor(
    readonly lines: readonly string[],
    readonly valid?: ValidSettings,
  ) {
    super(lines.join("\n"));
  }
}
