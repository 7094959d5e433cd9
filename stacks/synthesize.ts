import { loadSettings, SettingsError } from "./settings.ts";

export interface SynthesizeOptions {
  /** Folder of the settings files. */
  readonly settings: string;
  /** Folder to write to. */
  readonly outdir: string;
  /** Receives each warning, as one line. */
  readonly warn?: (line: string) => void;
}

/**
 * Synthesizes all environments.
 *
 * @returns One line for each stack with its services.
 * @throws {SettingsError} with every error of every file or, if there is none, all findings of the checks. Nothing is
 *   written then.
 */
export async function synthesize({
  settings: folder,
  ...options
}: SynthesizeOptions): Promise<readonly string[]> {
  const { settings, mistakes } = loadSettings(folder);
  if (mistakes.length > 0) throw new SettingsError(mistakes);
  // after the settings: loading cdktf and the provider bindings takes most of the time
  const { writeStacks } = await import("./write-stacks.ts");
  return writeStacks(settings, options);
}
