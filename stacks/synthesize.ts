import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { loadEnvironments, type RejectedEnvironment } from "./environment-files.ts";

export interface SynthesizeOptions {
  /** Folder of the environments. */
  readonly environments: string;
  /** Folder that held the settings in earlier versions. */
  readonly formerFolder?: string;
  /** Output folder. */
  readonly outdir: string;
  /** Receives each warning, as one line. */
  readonly warn?: (line: string) => void;
}

export interface SynthesizeResult {
  /** One line for each written stack with its services. */
  readonly summaries: readonly string[];
  /** Ports and GPUs that environments share, one line each. */
  readonly notes: readonly string[];
  /** Environments with errors, which are not written, by name. */
  readonly rejected: readonly RejectedEnvironment[];
}

/**
 * Synthesizes all valid environments of a folder.
 *
 * @throws {SettingsError} if the folder cannot be read or has no environments.
 */
export async function synthesize({
  environments: folder,
  formerFolder,
  ...options
}: SynthesizeOptions): Promise<SynthesizeResult> {
  removeOutput(options.outdir);
  const { environments, rejected } = loadEnvironments(folder, formerFolder);
  // cdktf and the provider bindings take most of the time
  if (environments.length === 0) return { summaries: [], notes: [], rejected };
  const { writeStacks } = await import("./write-stacks.ts");
  const written = writeStacks(environments, options);
  return { ...written, rejected: [...rejected, ...written.rejected] };
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
