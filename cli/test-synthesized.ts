import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestDocument } from "../artefact/test-artefact.ts";

/** Writes the output of a synthesis of one environment, for tests. */
export function synthesized(document: TestDocument): {
  readonly outdir: string;
  readonly file: string;
} {
  const outdir = mkdtempSync(join(tmpdir(), "clipstack-synthesized-"));
  const { name } = document.output.environment.value;
  const path = `stacks/${name}/cdk.tf.json`;
  const file = join(outdir, path);
  const json = JSON.stringify(document);
  mkdirSync(join(outdir, "stacks", name), { recursive: true });
  writeFileSync(file, json);
  const sha256 = createHash("sha256").update(json).digest("hex");
  writeFileSync(
    join(outdir, "clipstack.json"),
    JSON.stringify({ schema: 1, stacks: { [name]: { file: path, sha256 } } }),
  );
  return { outdir, file };
}
