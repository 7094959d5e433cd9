import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { makeScratchFolder } from "../../artefact/scratch-folder.ts";
import type { Settings } from "../../bench/tune/coordinate-search.ts";
import { UserError } from "../../contract/user-error.ts";
import { displayPath } from "../../model-tools/files/user-errors.ts";
import { withSetting } from "../../stacks/settings/edit-settings.ts";
import { environmentFile } from "../../stacks/settings/environment-files.ts";
import { loadModels, modelFolder } from "../../stacks/settings/model-files.ts";
import { parseEnvironment } from "../../stacks/settings/settings.ts";
import { outputFolder, runSynth, type SynthesizedFile } from "../shared/artefact.ts";
import { environmentsFolder } from "../shared/project.ts";
import type { EnvironmentText } from "./environment-text.ts";

/** Checks, before anything is measured, that the result can be written. A superuser could write a read-only file, but must not. */
export function requireWritableFile({ file }: EnvironmentText): void {
  if ((statSync(file).mode & 0o222) === 0) {
    throw new UserError(`--write: ${displayPath(file)} is read-only`);
  }
}

/**
 * Calls `use` with a function that synthesizes the file with other settings. Their files are in folders of their own beside those of the
 * environments, whose names contain no dot, because paths in a file are relative to its folder.
 */
export async function withCandidates<Result>(
  tuned: EnvironmentText,
  signal: AbortSignal,
  use: (
    synthesize: (name: string, settings: Settings) => Promise<SynthesizedFile>,
  ) => Promise<Result>,
): Promise<Result> {
  const scratch = makeScratchFolder();
  const folders = new Map<string, SynthesizedFile>();
  const environments = join(scratch, "environments");
  mkdirSync(environments);
  const models = modelFolder(environmentsFolder());
  if (existsSync(models)) symlinkSync(models, modelFolder(environments));
  try {
    return await use(async (name, settings) => {
      const known = folders.get(name);
      if (known !== undefined) return known;
      const file = environmentFile(environments, name);
      writeFileSync(file, withSettings(tuned.text, settings));
      const errors = await runSynth(join(scratch, "out"), { environments, signal });
      signal.throwIfAborted();
      if (errors !== undefined) throw new UserError(errors);
      rmSync(file);
      const folder = join(outputFolder(), "stacks", `tune.${process.pid}.${name}`);
      mkdirSync(folder, { recursive: true });
      const copy = join(folder, "cdk.tf.json");
      copyFileSync(join(scratch, "out/stacks", name, "cdk.tf.json"), copy);
      const made = { name, file: copy, displayPath: displayPath(copy), editedByHand: false };
      folders.set(name, made);
      return made;
    });
  } finally {
    for (const { file } of folders.values()) rmSync(dirname(file), { recursive: true });
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Start of the comment line that states the reason; that of an earlier run is replaced. */
const reasonStart = "# clipstack tune: ";

/**
 * Text of an environment file with other settings; every other line stays as it is.
 *
 * @param reason - For a comment below those at the start of the file.
 */
export function withSettings(text: string, settings: Settings, reason?: string): string {
  const changed = Object.entries(settings).reduce(
    (before, [setting, value]) => withSetting(before, setting.split("."), String(value)),
    text,
  );
  if (reason === undefined) return changed;
  const lines = changed.split("\n").filter((line) => !line.startsWith(reasonStart));
  const first = lines.findIndex((line) => !line.startsWith("#"));
  return [...lines.slice(0, first), `${reasonStart}${reason}`, ...lines.slice(first)].join("\n");
}

/**
 * Writes settings into the environment file.
 *
 * @throws {UserError} if the file is no longer that of the start of the run, or cannot be written.
 */
export function writeTunedFile(tuned: EnvironmentText, settings: Settings, reason: string): void {
  const { file, text, environment } = tuned;
  const path = displayPath(file);
  const lines = Object.entries(settings).map(([setting, value]) => `${setting}: ${value}`);
  const failed = (rule: string) =>
    new UserError(`--write: ${path} ${rule}, so it is kept; set ${lines.join(", ")} yourself`);
  if (!existsSync(file) || readFileSync(file, "utf8") !== text) {
    throw failed("was changed during the run");
  }
  const written = withSettings(text, settings, reason);
  parseEnvironment(environment.name, path, written, loadModels(modelFolder(dirname(file))));
  try {
    writeFileSync(file, written);
  } catch (error) {
    throw failed(`cannot be written (${(error as NodeJS.ErrnoException).code})`);
  }
}
