import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { loadEnvironments } from "./settings/environment-files.ts";
import { randomWeightNotes } from "./shared/random-weights.ts";
import type { WriteOptions, WrittenStacks } from "./write-stacks.ts";

export interface SynthesizeOptions extends WriteOptions {
  /** Folder of the environments. */
  readonly environments: string;
  /** Base folder of relative paths. @default - the current folder */
  readonly project?: string;
}

/** Synthesizes all valid environments of a folder. */
export async function synthesize({
  environments: folder,
  ...options
}: SynthesizeOptions): Promise<WrittenStacks> {
  removeOutput(options.outdir);
  const { environments, rejected } = loadEnvironments(folder);
  // cdktf and the provider bindings take most of the time
  if (environments.length === 0 && rejected.every(({ valid }) => valid === undefined)) {
    return { summaries: [], notes: [], rejected, requirements: [] };
  }
  const { portLines, writeStacks } = await import("./write-stacks.ts");
  const written = writeStacks(environments, options);
  const unwritten = rejected.map((file) => ({
    ...file,
    lines: [...file.lines, ...portLines(file)],
  }));
  const random = await randomWeightNotes(written.requirements, options.project ?? process.cwd());
  return {
    ...written,
    notes: [...written.notes, ...random],
    rejected: [...unwritten, ...written.rejected],
  };
}

/** Removes what an earlier synthesis wrote, so that no invalid environment keeps its earlier stack. */
function removeOutput(outdir: string): void {
  rmSync(join(outdir, "clipstack.json"), { force: true });
  const stacks = join(outdir, "stacks");
  let names: readonly string[];
  try {
    names = readdirSync(stacks);
  } catch {
    return;
  }
  // only the file: the folder of a stack also contains Terraform's plugins and locks
  for (const name of names) rmSync(join(stacks, name, "cdk.tf.json"), { force: true });
}
