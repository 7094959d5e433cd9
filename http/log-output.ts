import { writeSync } from "node:fs";

/**
 * Writes to standard output (1) or standard error (2). Text that cannot be written, to a full disk or a closed pipe, is lost; the
 * server keeps serving and stops as usual.
 */
export function writeLog(descriptor: 1 | 2, text: string): void {
  try {
    writeSync(descriptor, text);
  } catch {
    // no other output is left to report it on
  }
}
