import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Removes all temporary files of the tests at their end, because cdktf's `Testing` removes none. */
export default function temporaryFolder(): () => void {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-tests-"));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true });
}
