import { writeFileSync } from "node:fs";
import { UserError } from "../../contract/user-error.ts";

/** Writes the file that an option names. */
export function writeOutput(file: string, text: string, option = "--output"): void {
  try {
    writeFileSync(file, text);
  } catch (error) {
    throw new UserError(
      `${option} ${file} cannot be written: ${(error as NodeJS.ErrnoException).code}`,
    );
  }
}
