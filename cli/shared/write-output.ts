import { writeFileSync } from "node:fs";
import { UserError } from "../../contract/user-error.ts";

/** Runs a file operation. Its error becomes one line: `--report reports cannot be written: EACCES`. */
export function withFileErrors<T>(
  subject: string,
  action: "read" | "written" | "created",
  work: () => T,
): T {
  try {
    return work();
  } catch (error) {
    throw new UserError(`${subject} cannot be ${action}: ${(error as NodeJS.ErrnoException).code}`);
  }
}

/** Writes the file that an option names. */
export function writeOutput(file: string, text: string, option = "--output"): void {
  withFileErrors(`${option} ${file}`, "written", () => writeFileSync(file, text));
}

/** Writes a file, which must not exist. */
export function writeNewFile(file: string, text: string, subject = file): void {
  try {
    writeFileSync(file, text, { flag: "wx" });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const problem = code === "EEXIST" ? "exists" : `cannot be written: ${code}`;
    throw new UserError(`${subject} ${problem}`);
  }
}
