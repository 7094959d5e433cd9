import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** One temporary folder for all that the tests write, cdktf's `Testing` included, which removes nothing itself. */
export default function temporaryFolder(): () => void {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-tests-"));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true });
}
